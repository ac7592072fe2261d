"""Python in documents, in the interpreter of the real clients: what of it is wrong, as JSON.

``document_code.py DOCUMENT...``: every block must compile, what it imports must be there, and what
it takes from our packages too.
"""

from __future__ import annotations

import ast
import inspect
import json
import re
import sys
from pathlib import Path

OURS = ("Qwen3TTSService", "qwen3tts")


def wrong(code: str) -> list[str]:
    flags = ast.PyCF_ALLOW_TOP_LEVEL_AWAIT
    tree = ast.parse(code)
    compile(code, "document", "exec", flags=flags)
    names: dict[str, object] = {}
    for node in tree.body:
        if isinstance(node, ast.Import | ast.ImportFrom):
            exec(ast.unparse(node), names)
    missing = []
    for call in (each for each in ast.walk(tree) if isinstance(each, ast.Call)):
        if ast.unparse(call.func).startswith(OURS):
            known = inspect.signature(eval(ast.unparse(call.func), names)).parameters
            missing += [each.arg for each in call.keywords if each.arg not in known]
    return [f"no argument {name}" for name in missing]


def main(*documents: str) -> None:
    result = {}
    for name in documents:
        blocks = re.findall(r"```python\n(.*?)```", Path(name).read_text(), re.DOTALL)
        result["/".join(Path(name).parts[-2:])] = [wrong(each) for each in blocks]
    print(json.dumps(result))


main(*sys.argv[1:])
