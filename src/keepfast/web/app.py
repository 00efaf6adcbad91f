"""The application: routes from the tables of pages and operations, errors as answers, sessions, the stream."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from hmac import compare_digest
from http import HTTPStatus
from importlib.resources import files
from time import monotonic
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from starlette.applications import Starlette
from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import JSONResponse, RedirectResponse, Response, StreamingResponse
from starlette.routing import Route

from keepfast import __version__
from keepfast.model.errors import (
    Busy,
    Conflict,
    Damaged,
    KeepfastError,
    NotFound,
    NoWorkspace,
    Refused,
    Usage,
    shortage,
)
from keepfast.web import api, operations, pages
from keepfast.web import request as asking
from keepfast.web.access import WAY_IN, Gate, Proxy, Refusal, cookie_name, cookie_path
from keepfast.web.local_users import users
from keepfast.web.pages import at_home
from keepfast.web.queries import opened
from keepfast.web.sessions import OPENED, OPERATOR, Book, Visitor, halves
from keepfast.web.stream import Stream, as_json
from keepfast.web.translation import Words, chosen
from keepfast.workspace.marker import show

if TYPE_CHECKING:
    from starlette.types import ASGIApp, Scope

    from keepfast.app.checkpoint import Engine
    from keepfast.runner.actions.runtime import Runtime
    from keepfast.web.doctor import Check
    from keepfast.web.queries import Desk

STATUS = (
    (NotFound, HTTPStatus.NOT_FOUND), (NoWorkspace, HTTPStatus.NOT_FOUND), (Usage, HTTPStatus.BAD_REQUEST),
    (Refused, HTTPStatus.BAD_REQUEST), (Conflict, HTTPStatus.CONFLICT), (Busy, HTTPStatus.SERVICE_UNAVAILABLE),
    (Damaged, HTTPStatus.INTERNAL_SERVER_ERROR),
)  # fmt: skip
STATIC = {
    "keepfast.css": "text/css", "keepfast.js": "text/javascript", "notices.js": "text/javascript",
    "worker.js": "text/javascript", "icon.svg": "image/svg+xml",
}  # fmt: skip
LANGUAGE = "keepfast_language"
MOST_STREAMS = 150


class Site:
    """Everything behind the gate. `build` gives a request its own engine."""

    def __init__(
        self,
        book: Book,
        build: Callable[[], Engine],
        now: Callable[[], int],
        ground: Callable[[], Runtime] | None = None,
        password: Callable[[], str] = lambda: "",
        config: str = "",
        doctor: Callable[[], list[Check]] = list,
        home: str = "",
    ) -> None:
        self.book, self.build, self.now, self.ground, self.password = book, build, now, ground, password
        self.config, self.doctor, self.home = config, doctor, home
        self.stream = Stream(book, build, ground)
        self.templates = pages.environment(home)
        self.gate: Gate | None = None

    def application(self, origins: dict[str, str], proxy: Proxy | None = None, gate: type[Gate] = Gate) -> Gate:
        routes = [Route(route.path, self._page(route), methods=[route.method]) for route in pages.ROUTES]
        routes += [Route(one.path, self._operation(one), methods=[one.method]) for one in operations.OPERATIONS]
        routes += [
            Route("/api/openapi.json", self._document, methods=["GET"]),
            Route("/api/events", self._events, methods=["GET"]),
            Route("/api/stream", self._listen, methods=["GET"]),
            Route("/api/tasks/{task}/stream", self._listen, methods=["GET"]),
            Route("/session", self._enter, methods=["POST"]),
            Route("/leave", self._leave, methods=["POST"]),
            Route("/language", self._language, methods=["POST"]),
            Route("/static/{name}", self._static, methods=["GET"]),
        ]
        app = Starlette(routes=routes, lifespan=self._lifespan, exception_handlers=self._handlers())
        app.router.redirect_slashes = False  # it would lead out of the session's folder, which it does not know
        self.gate = gate(app, self.book, origins, self._refuse, monotonic, proxy)
        return self.gate

    @asynccontextmanager
    async def _lifespan(self, _: Starlette) -> AsyncIterator[None]:
        self.stream.start()
        yield
        self.stream.stop()

    def _handlers(self) -> dict[Any, Any]:
        return {404: self._lost, 405: self._lost, Exception: self._broken}

    # Pages and operations

    def _page(self, route: asking.Route) -> Callable[[Request], Any]:
        async def answer(request: Request) -> Response:
            visitor = request.scope["keepfast.visitor"]
            if visitor is None:
                return self._html(request, "hello.html", {}, HTTPStatus.UNAUTHORIZED)
            target = request.url.path
            # Read before the page is: what happens while it is being made is told to it afterwards.
            last = self.book.last()
            try:
                _check_role(visitor, OPERATOR if _asks_for_sealed(request) else route.role)
                page = await run_in_threadpool(self._run_page, request, route, visitor)
            except KeepfastError as error:
                self._audit(route.method, visitor, target, str(error))
                return self._wrong(request, error)
            self._audit(route.method, visitor, target, "done")
            if page.goto:
                return _goto(request, page.goto)
            return self._html(request, page.template, {**page.values, "last": last})

        return answer

    def _run_page(self, request: Request, route: asking.Route, visitor: Visitor) -> asking.Page:
        fields = (
            request.scope["keepfast.form"]
            if route.method == "POST"
            else asking.fields_of(request.scope["query_string"])
        )
        with opened(self.build, self.now, self.ground, self.config) as desk:
            words = self._words(request)
            ask = asking.Ask(desk, self.book, request.path_params, fields, visitor, words, self.doctor, self.home)
            desk.opens_sealed = _asks_for_sealed(request)
            page = route.run(ask)
            self._audit_sealed(request, desk)
            return page

    def _operation(self, operation: api.Operation) -> Callable[[Request], Any]:
        async def answer(request: Request) -> Response:
            visitor = request.scope["keepfast.visitor"]
            if visitor is None:
                return _failure(HTTPStatus.UNAUTHORIZED, "Not signed in, or the session has ended.", "unauthorized")
            method = operation.method if operation.changes else "GET"
            try:
                _check_role(visitor, OPERATOR if _asks_for_sealed(request) else operation.role)
                result = await run_in_threadpool(self._run_operation, request, operation)
            except KeepfastError as error:
                self._audit(method, visitor, request.url.path, str(error))
                return _failure(_status(error), str(error), error.kind, error.hint)
            self._audit(method, visitor, request.url.path, "done")
            return JSONResponse({"success": True, "data": result})

        return answer

    def _run_operation(self, request: Request, operation: api.Operation) -> Any:
        body = request.scope.get("keepfast.body", b"")
        values = api.read_values(operation, request.path_params, request.scope["query_string"], body)
        with opened(self.build, self.now, self.ground, self.config) as desk:
            if operation.changes:
                values["by"] = request.scope["keepfast.visitor"].role
            desk.opens_sealed = _asks_for_sealed(request)
            result = operation.run(desk, values)
            self._audit_sealed(request, desk)
            return result

    def _audit_sealed(self, request: Request, desk: Desk) -> None:
        """Written down before it is shown."""
        for path in desk.shown_sealed:
            self.book.audit(request.scope["keepfast.visitor"], OPENED, f"{request.url.path}?path={show(path)}", "done")

    def _audit(self, method: str, visitor: Visitor, target: str, outcome: str) -> None:
        if method != "GET":
            self.book.audit(visitor, method, target, outcome)

    # The stream

    async def _events(self, request: Request) -> Response:
        if request.scope["keepfast.visitor"] is None:
            return _failure(HTTPStatus.UNAUTHORIZED, "Not signed in, or the session has ended.", "unauthorized")
        since = _since(request)
        found = await run_in_threadpool(self.book.since, since)
        return JSONResponse({"success": True, "data": [as_json(one) for one in found], "last": self.book.last()})

    async def _listen(self, request: Request) -> Response:
        if request.scope["keepfast.visitor"] is None:
            return _failure(HTTPStatus.UNAUTHORIZED, "Not signed in, or the session has ended.", "unauthorized")
        if len(self.stream.listeners) >= MOST_STREAMS:
            return _failure(HTTPStatus.SERVICE_UNAVAILABLE, "Too many open event streams.", "busy")
        visitor, by_proxy = request.scope["keepfast.visitor"], request.scope["keepfast.by_proxy"]
        lines = self.stream.listen(
            _since(request),
            request.path_params.get("task", ""),
            visitor.hash,
            lambda: by_proxy or self.book.holds(visitor),
        )
        return StreamingResponse(lines, media_type="text/event-stream")

    # Coming and going

    async def _enter(self, request: Request) -> Response:
        assert self.gate is not None
        form, plain = request.scope["keepfast.form"], bool(request.scope["keepfast.form"])
        try:
            ticket = form.get("ticket") or json.loads(request.scope["keepfast.body"] or b"{}").get("ticket")
        except (ValueError, AttributeError, RecursionError):
            return _failure(HTTPStatus.BAD_REQUEST, "The body is not a JSON object.", "usage")
        agent = request.headers.get("user-agent", "a program")
        given = ticket if isinstance(ticket, str) else ""
        user = users.of(request.scope.get("client"))
        # On this machine, whoever runs the page signs in: a ticket that somebody else got hold of is worth nothing to them.
        is_ours = not users.is_another(request.scope.get("client"))
        session = self.book.exchange(given.strip(), agent, user) if is_ours else None
        if session is None and is_ours and self.gate.may_guess(request.scope) and self._is_password(given):
            session = self.book.enter(OPERATOR, agent, user)
        if session is None:
            try:
                self.gate.guessed_wrong(request.scope)
            except Refusal as refusal:
                return _failure(refusal.status, refusal.text, "refused", headers=refusal.headers)
            self.book.audit(None, "POST", "/session", "refused")
            text = "The ticket is invalid, expired or already used."
            if plain:
                return self._html(request, "hello.html", {"wrong": text}, HTTPStatus.UNAUTHORIZED)
            return _failure(HTTPStatus.UNAUTHORIZED, text, "unauthorized", "Run `keepfast serve --link` for a new one.")
        visitor = self.book.visitor(session)
        assert visitor is not None
        self.book.audit(visitor, "POST", "/session", "entered")
        folder, cookie = halves(session)
        response: Response = RedirectResponse(f"{folder}/", HTTPStatus.SEE_OTHER)
        if not plain:
            answer = {"role": visitor.role, "session": session, "folder": folder}
            response = JSONResponse({"success": True, "data": answer})
        secure = request.scope["keepfast.secure"]
        response.set_cookie(
            cookie_name(secure), cookie, max_age=self.book.session_days * 86_400, httponly=True, samesite="lax",
            secure=secure, path=cookie_path(secure, folder),
        )  # fmt: skip
        return response

    def _is_password(self, given: str) -> bool:
        password = self.password()
        return bool(password) and compare_digest(given.encode("utf-8", "replace"), password.encode())

    async def _leave(self, request: Request) -> Response:
        self.book.leave(request.scope["keepfast.visitor"])
        self.stream.end_of(request.scope["keepfast.visitor"].hash)
        response = RedirectResponse("/", HTTPStatus.SEE_OTHER)
        secure = request.scope["keepfast.secure"]
        path = cookie_path(secure, request.scope["keepfast.folder"])
        response.delete_cookie(cookie_name(secure), path=path, secure=secure, httponly=True, samesite="lax")
        return response

    async def _language(self, request: Request) -> Response:
        back = request.scope["keepfast.form"].get("back", "/")
        # Only a path of ours: `//elsewhere` and `/\elsewhere` would lead a browser away.
        safe = back if back.startswith("/") and back[1:2] not in ("/", "\\") else "/"
        response = _goto(request, safe)
        wanted = chosen(request.scope["keepfast.form"].get("language", ""), "")
        response.set_cookie(LANGUAGE, wanted, max_age=365 * 86_400, httponly=True, samesite="lax", path="/")
        return response

    # Answers

    def _html(self, request: Request, name: str, values: Any, status: int = HTTPStatus.OK) -> Response:
        visitor = request.scope.get("keepfast.visitor")
        words = self._words(request)
        text = self.templates.get_template(name).render(
            _=words,
            language=words.language,
            visitor=visitor,
            token=self.book.token(visitor) if visitor is not None else "",
            now=self.now(),
            session_folder=request.scope["keepfast.folder"],
            here_path=request.url.path + (f"?{request.url.query}" if request.url.query else ""),
            version=__version__,
            **{
                "wrong": "",
                "damaged": False,
                "back": "/",
                "last": self.book.last() if visitor is not None else 0,
                **values,
            },
        )
        text = at_home(text, request.scope["keepfast.folder"])
        return Response(text.encode("utf-8", "replace"), status, media_type="text/html; charset=utf-8")

    def _wrong(self, request: Request, error: KeepfastError) -> Response:
        status = _status(error)
        values = {"text": str(error), "hint": error.hint, "status": status, "damaged": isinstance(error, Damaged)}
        return self._html(request, "wrong.html", {**values, "back": _back(request)}, status)

    def _words(self, request: Request) -> Words:
        return Words(chosen(request.cookies.get(LANGUAGE, ""), request.headers.get("accept-language", "")))

    def _refuse(self, scope: Scope, refusal: Refusal) -> ASGIApp:
        request = Request(scope)
        scope["keepfast.visitor"] = None
        if "location" in refusal.headers:
            answer = Response(b"", refusal.status)
        elif refusal.text == WAY_IN and not scope["path"].startswith(("/api/", "/session")):
            answer = self._html(request, "outside.html", {}, refusal.status)
        elif scope["path"].startswith(("/api/", "/session")) or refusal.status == HTTPStatus.MISDIRECTED_REQUEST:
            answer = _failure(refusal.status, refusal.text, "refused")
        elif refusal.status == HTTPStatus.UNAUTHORIZED:
            answer = self._html(request, "hello.html", {}, refusal.status)
        else:
            answer = self._html(
                request, "wrong.html", {"text": refusal.text, "hint": "", "status": refusal.status}, refusal.status
            )
        answer.headers.update(refusal.headers)
        return answer

    async def _lost(self, request: Request, error: Any) -> Response:
        status = error.status_code
        text = "Page not found." if status == HTTPStatus.NOT_FOUND else "Method not allowed."
        if request.url.path.startswith("/api/"):
            return _failure(status, text, "not_found" if status == HTTPStatus.NOT_FOUND else "usage")
        return self._html(request, "wrong.html", {"text": text, "hint": "", "status": status}, status)

    async def _broken(self, request: Request, error: Exception) -> Response:
        short = shortage(error)
        text = f"Internal error: {type(error).__name__}. Nothing was lost; please report it."
        if short is not None:
            text = str(short)
        if request.url.path.startswith("/api/"):
            return _failure(HTTPStatus.INTERNAL_SERVER_ERROR, text, "failed")
        values = {"text": text, "hint": "", "status": 500}
        return self._html(request, "wrong.html", values, HTTPStatus.INTERNAL_SERVER_ERROR)

    async def _static(self, request: Request) -> Response:
        name = request.path_params["name"]
        if name not in STATIC:
            return Response("", HTTPStatus.NOT_FOUND)
        content = (files("keepfast.web") / "static" / name).read_bytes()
        return Response(content, media_type=STATIC[name])

    async def _document(self, request: Request) -> Response:
        if request.scope["keepfast.visitor"] is None:
            return _failure(HTTPStatus.UNAUTHORIZED, "Not signed in, or the session has ended.", "unauthorized")
        return JSONResponse(api.document(operations.OPERATIONS))


def _back(request: Request) -> str:
    """Where somebody came from, if that was a page of ours; else the workspace, the task or the first page."""
    found = urlsplit(request.headers.get("referer", ""))
    path = found.path.removeprefix(request.scope["keepfast.folder"])
    if (
        found.netloc.lower() == request.headers.get("host", "").lower()
        and path.startswith("/")
        and path != request.url.path
    ):
        return f"{path}?{found.query}" if found.query else path
    parts = request.path_params
    return f"/w/{parts['workspace']}" if "workspace" in parts else f"/t/{parts['task']}" if "task" in parts else "/"


def _goto(request: Request, path: str) -> Response:
    """Lead to another page of the same session."""
    return RedirectResponse(request.scope["keepfast.folder"] + path, HTTPStatus.SEE_OTHER)


def _asks_for_sealed(request: Request) -> bool:
    """Does somebody who only looks ask for what is sealed? Roles and contents both go by this."""
    return request.method == "GET" and asking.fields_of(request.scope["query_string"]).get("sealed") == "true"


class _Forbidden(KeepfastError):
    kind = "forbidden"


def _check_role(visitor: Visitor, role: str) -> None:
    if visitor.may(role):
        return
    raise _Forbidden(
        f"This needs the role {role}; you are signed in as {visitor.role}.",
        f"Run `keepfast serve --link --role {role}` for a link with that role.",
    )


def _status(error: KeepfastError) -> int:
    if isinstance(error, _Forbidden):
        return HTTPStatus.FORBIDDEN
    if error.kind == "not_allowed":
        return HTTPStatus.CONFLICT
    return next((status for kind, status in STATUS if isinstance(error, kind)), HTTPStatus.INTERNAL_SERVER_ERROR)


def _failure(status: int, text: str, kind: str, hint: str = "", headers: Mapping[str, str] | None = None) -> Response:
    return JSONResponse({"success": False, "error": text, "kind": kind, "hint": hint}, status, headers)


def _since(request: Request) -> int:
    text = request.headers.get("last-event-id") or request.query_params.get("since", "")
    return int(text) if text.isascii() and text.isdecimal() and len(text) < 18 else 0
