"""The arguments of a tool: closed, so that a wrong name is an error that says the right one, and never passed over."""

from __future__ import annotations

from difflib import get_close_matches
from typing import TYPE_CHECKING, Any

from mcp.server.mcpserver.exceptions import ToolError
from mcp.server.mcpserver.tools import Tool
from pydantic import ValidationError, create_model

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from mcp.types import ToolAnnotations
    from pydantic_core import ErrorDetails

SIMILAR = 0.5
MOST_ERRORS, MOST_NAME = 5, 60
UNKNOWN = "extra_forbidden"


class ClosedTool(Tool):
    """A tool that takes the arguments it declares, and no others."""

    async def run(self, arguments: dict[str, Any], context: Any, convert_result: bool = False) -> Any:
        # The SDK would give the model a page of its validator's own words.
        try:
            self.fn_metadata.validate_arguments(arguments)
        except ValidationError as error:
            raise ToolError(f"{self.name}: {self._told(error)}") from error
        return await super().run(arguments, context, convert_result)

    def _told(self, error: ValidationError) -> str:
        errors = error.errors(include_url=False, include_input=False)
        known = list(self.parameters.get("properties", {}))
        sentences = [_sentence(one, known) for one in errors[:MOST_ERRORS]]
        if len(errors) > MOST_ERRORS:
            sentences.append(f"{len(errors) - MOST_ERRORS:,} more errors.")
        return " ".join(sentences)


def closed(function: Callable[..., Any], title: str, kind: ToolAnnotations, meta: dict[str, Any]) -> Tool:
    """The function as a tool whose schema admits nothing that it does not name."""
    tool = ClosedTool.from_function(function, title=title, annotations=kind, meta=meta or None)
    declared = tool.fn_metadata.arg_model
    tool.fn_metadata.arg_model = create_model(declared.__name__, __base__=declared, __cls_kwargs__={"extra": "forbid"})
    tool.parameters = tool.fn_metadata.arg_model.model_json_schema(by_alias=True)
    return tool


def nearest(name: str, known: Sequence[str]) -> str:
    """The known name that was probably meant; empty if none is close."""
    found = get_close_matches(name[:MOST_NAME], known, 1, SIMILAR)
    starts = [one for one in known if len(name) > 1 and one.startswith(name)]
    return (starts or found or [""])[0]


def _sentence(error: ErrorDetails, known: Sequence[str]) -> str:
    place = [str(part) for part in error["loc"]]
    where = ".".join([place[0], *place[1:]])[: 2 * MOST_NAME] if place else "arguments"
    if error["type"] != UNKNOWN:
        return f"{where}: {error['msg']}."
    meant = nearest(place[-1], known)
    guess = f" Did you mean {meant!r}?" if meant else ""
    return f"Unknown argument {where[:MOST_NAME]!r}.{guess} Known: {', '.join(known)}."
