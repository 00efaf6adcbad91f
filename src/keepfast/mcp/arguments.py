"""Tools with closed arguments: an unknown name is an error that suggests the right one, and is never ignored."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from difflib import get_close_matches
from typing import Any

from mcp.server.mcpserver.exceptions import ToolError
from mcp.server.mcpserver.tools import Tool
from mcp.types import ToolAnnotations
from pydantic import ValidationError, create_model
from pydantic_core import ErrorDetails

SIMILARITY = 0.5
MAX_ERRORS, MAX_NAME = 5, 60
UNKNOWN_ARGUMENT = "extra_forbidden"


class ClosedTool(Tool):
    """A tool that takes the arguments it declares, and no others."""

    async def run(self, arguments: dict[str, Any], context: Any, convert_result: bool = False) -> Any:
        # The SDK would give the model a page of the validator's messages.
        try:
            self.fn_metadata.validate_arguments(arguments)
        except ValidationError as error:
            raise ToolError(f"{self.name}: {self._describe(error)}") from error
        return await super().run(arguments, context, convert_result)

    def _describe(self, error: ValidationError) -> str:
        errors = error.errors(include_url=False, include_input=False)
        argument_names = list(self.parameters.get("properties", {}))
        sentences = [_message_for(error_detail, argument_names) for error_detail in errors[:MAX_ERRORS]]
        if len(errors) > MAX_ERRORS:
            sentences.append(f"{len(errors) - MAX_ERRORS:,} more errors.")
        return " ".join(sentences)


def closed_tool(function: Callable[..., Any], title: str, kind: ToolAnnotations, meta: dict[str, Any]) -> Tool:
    """Return the function as a tool whose schema forbids other arguments."""
    tool = ClosedTool.from_function(function, title=title, annotations=kind, meta=meta or None)
    declared = tool.fn_metadata.arg_model
    tool.fn_metadata.arg_model = create_model(declared.__name__, __base__=declared, __cls_kwargs__={"extra": "forbid"})
    tool.parameters = tool.fn_metadata.arg_model.model_json_schema(by_alias=True)
    return tool


def nearest(name: str, names: Sequence[str]) -> str:
    """Return the name that was probably meant; empty if none is similar."""
    similar = get_close_matches(name[:MAX_NAME], names, 1, SIMILARITY)
    starts = [candidate for candidate in names if len(name) > 1 and candidate.startswith(name)]
    return (starts or similar or [""])[0]


def _message_for(error: ErrorDetails, argument_names: Sequence[str]) -> str:
    place = [str(part) for part in error["loc"]]
    where = ".".join([place[0], *place[1:]])[: 2 * MAX_NAME] if place else "arguments"
    if error["type"] != UNKNOWN_ARGUMENT:
        return f"{where}: {error['msg']}."
    guess = nearest(place[-1], argument_names)
    suggestion = f" Did you mean {guess!r}?" if guess else ""
    return f"Unknown argument {where[:MAX_NAME]!r}.{suggestion} Known: {', '.join(argument_names)}."
