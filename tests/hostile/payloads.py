"""Code that a pickle can carry: each payload, if anything ran it, would create the marker file."""

from __future__ import annotations

import pickle

from tests.writers.raw_pickle import call, integer, mapping, named, text

CODE = "__import__('os').system({!r})"


def payloads(command: str) -> dict[str, bytes]:
    """By name, opcodes that push the result of running a shell command."""
    code = CODE.format(command)
    line = command.encode()
    shell = text(command)
    argv = pickle.EMPTY_LIST + pickle.MARK + text("/bin/sh") + text("-c") + shell + pickle.APPENDS
    return {
        "os.system": call("os.system", shell),
        "posix.system": call("posix.system", shell),
        "builtins.eval": call("builtins.eval", text(code)),
        "builtins.exec": call("builtins.exec", text(code)),
        "__builtin__.eval": call("__builtin__.eval", text(code)),
        "subprocess.Popen": call("subprocess.Popen", argv),
        "subprocess.check_output": call("subprocess.check_output", argv),
        "os.execl": call("os.execl", text("/bin/sh"), text("sh"), text("-c"), shell),
        "os.popen": call("os.popen", shell),
        "pty.spawn": call("pty.spawn", argv),
        "compile": call("builtins.exec", call("builtins.compile", text(code), text("x"), text("exec"))),
        "timeit": call("timeit.timeit", text(code), text("pass"), named("time.time"), integer(1)),
        "bdb": (
            text("bdb") + text("Bdb.run") + pickle.STACK_GLOBAL
            + call("bdb.Bdb") + text(code) + pickle.TUPLE2 + pickle.REDUCE
        ),
        "cProfile": call("cProfile.run", text(code)),
        "pydoc": call("pydoc.pipepager", text(""), shell),
        "code": (
            text("code") + text("InteractiveInterpreter.runsource") + pickle.STACK_GLOBAL
            + call("code.InteractiveInterpreter") + text(code) + pickle.TUPLE2 + pickle.REDUCE
        ),
        "getattr": (
            call("builtins.getattr", call("importlib.import_module", text("os")), text("system"))
            + shell + pickle.TUPLE1 + pickle.REDUCE
        ),
        "functools.partial": (
            call("functools.partial", named("os.system"), shell) + pickle.EMPTY_TUPLE + pickle.REDUCE
        ),
        "operator.methodcaller": (
            call("operator.methodcaller", text("system"), shell)
            + call("importlib.import_module", text("os")) + pickle.TUPLE1 + pickle.REDUCE
        ),
        "torch.hub": call("torch.utils.collect_env.run", shell),
        "rebuild_from_type": call(
            "torch._tensor._rebuild_from_type_v2",
            named("os.system"), named("torch.Tensor"), shell + pickle.TUPLE1, pickle.NONE,
        ),
        "NEWOBJ": named("subprocess.Popen") + argv + pickle.TUPLE1 + pickle.NEWOBJ,
        "NEWOBJ_EX": named("subprocess.Popen") + argv + pickle.TUPLE1 + mapping() + pickle.NEWOBJ_EX,
        "INST": pickle.MARK + shell + pickle.INST + b"os\nsystem\n",
        "INST of protocol 0": b"(S'" + line + b"'\nios\nsystem\n",
        "OBJ": pickle.MARK + named("os.system") + shell + pickle.OBJ,
        "STACK_GLOBAL": (
            text("os") + text("system") + pickle.STACK_GLOBAL + shell + pickle.TUPLE1 + pickle.REDUCE
        ),
        "BUILD": (
            named("argparse.Namespace") + pickle.EMPTY_TUPLE + pickle.NEWOBJ
            + mapping((text("__setstate__"), named("os.system"))) + pickle.BUILD
            + shell + pickle.BUILD
        ),
        "BUILD in a tuple": (
            named("argparse.Namespace") + pickle.EMPTY_TUPLE + pickle.NEWOBJ
            + pickle.NONE + mapping((text("__setstate__"), named("os.system"))) + pickle.TUPLE2 + pickle.BUILD
            + shell + pickle.BUILD
        ),
        "list that runs when appended to": (
            call("functools.partial", named("os.system")) + shell + pickle.APPEND
        ),
        "mapping that runs when set": (
            call("unittest.mock.Mock") + shell + named("os.system") + pickle.SETITEM
        ),
        "EXT1": pickle.EXT1 + b"\x01" + shell + pickle.TUPLE1 + pickle.REDUCE,
        "EXT4": pickle.EXT4 + b"\x01\x00\x00\x00" + shell + pickle.TUPLE1 + pickle.REDUCE,
        "persistent id": call("os.system", shell) + pickle.BINPERSID,
    }  # fmt: skip
