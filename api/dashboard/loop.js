// Runs one piece of work again and again, never twice at once, and only while the page is seen.

export class Loop {
  #timer = null;
  #running = false;
  #again = false;

  constructor(work, milliseconds) {
    this.work = work;
    this.milliseconds = milliseconds;
    document.addEventListener("visibilitychange", () => this.now());
  }

  // At once, or as soon as the round under way is over.
  async now() {
    clearTimeout(this.#timer);
    this.#again = this.#running;
    if (this.#running || document.hidden) return;
    this.#running = true;
    try {
      await this.work();
    } finally {
      this.#running = false;
      if (this.#again) this.now();
      else this.#timer = setTimeout(() => this.now(), this.milliseconds);
    }
  }
}
