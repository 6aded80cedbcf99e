// The matrix as an image of one pixel a cell; transparent where there is no number.

import { colour } from "./colours.js";
import { fraction } from "./scale.js";

export function paint({ layers, steps, values }, range) {
  const image = document.createElement("canvas");
  image.width = Math.max(steps.length, 1);
  image.height = Math.max(layers.length, 1);
  const context = image.getContext("2d");
  const pixels = context.createImageData(image.width, image.height);
  values.flat().forEach((value, index) => {
    if (value !== null) pixels.data.set(colour(fraction(range, value)), index * 4);
  });
  context.putImageData(pixels, 0, 0);
  return image;
}
