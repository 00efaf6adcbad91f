"""The application: routes from the tables of pages and operations, errors as answers, sessions, the stream."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from hmac import compare_digest
from http import HTTPStatus
from importlib.resources import files
from time import monotonic
from typing import Any
from urllib.parse import urlsplit

from starlette.applications import Starlette
from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import JSONResponse, RedirectResponse, Response, StreamingResponse
from starlette.routing import Route
from starlette.types import ASGIApp, Scope

from keepfast import __version__
from keepfast.app.checkpoint import Engine
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
from keepfast.runner.actions.runtime import Runtime
from keepfast.web import api, operations, pages
from keepfast.web import request as page_types
from keepfast.web.access import WHERE_THE_PAGE_IS, Gate, Proxy, Refusal, cookie_name, cookie_path
from keepfast.web.doctor import DoctorCheck
from keepfast.web.local_users import users
from keepfast.web.pages import in_session_folder
from keepfast.web.queries import Backend, opened
from keepfast.web.sessions import OPENED, OPERATOR, Visitor, WebDatabase, split_session
from keepfast.web.stream import Stream, as_json
from keepfast.web.translation import Words, chosen
from keepfast.web.views import to_json
from keepfast.workspace.marker import show

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
MAX_STREAMS = 150


class Site:
    """The web application behind `Gate`. `build` returns a new engine for each request."""

    def __init__(
        self,
        database: WebDatabase,
        build: Callable[[], Engine],
        now: Callable[[], int],
        make_runtime: Callable[[], Runtime] | None = None,
        password: Callable[[], str] = lambda: "",
        config: str = "",
        doctor: Callable[[], list[DoctorCheck]] = list,
        home: str = "",
    ) -> None:
        self.database, self.build, self.now, self.make_runtime, self.password = (
            database,
            build,
            now,
            make_runtime,
            password,
        )
        self.config, self.doctor, self.home = config, doctor, home
        self.stream = Stream(database, build, make_runtime)
        self.templates = pages.environment(home)
        self.gate: Gate | None = None

    def application(self, origins: dict[str, str], proxy: Proxy | None = None, gate: type[Gate] = Gate) -> Gate:
        routes = [Route(route.path, self._page(route), methods=[route.method]) for route in pages.ROUTES]
        routes += [Route(one.path, self._operation(one), methods=[one.method]) for one in operations.OPERATIONS]
        routes += [
            Route("/api/openapi.json", self._document, methods=["GET"]),
            Route("/api/events", self._events, methods=["GET"]),
            Route("/api/stream", self._stream_events, methods=["GET"]),
            Route("/api/tasks/{task}/stream", self._stream_events, methods=["GET"]),
            Route("/session", self._sign_in, methods=["POST"]),
            Route("/leave", self._sign_out, methods=["POST"]),
            Route("/language", self._language, methods=["POST"]),
            Route("/static/{name}", self._static, methods=["GET"]),
        ]
        app = Starlette(routes=routes, lifespan=self._lifespan, exception_handlers=self._handlers())
        app.router.redirect_slashes = False  # a redirect would leave the session's folder
        self.gate = gate(app, self.database, origins, self._refuse, monotonic, proxy)
        return self.gate

    @asynccontextmanager
    async def _lifespan(self, _: Starlette) -> AsyncIterator[None]:
        self.stream.start()
        yield
        self.stream.stop()

    def _handlers(self) -> dict[Any, Any]:
        return {404: self._not_found, 405: self._not_found, Exception: self._internal_error}

    # Pages and operations

    def _page(self, route: page_types.Route) -> Callable[[Request], Any]:
        async def answer(request: Request) -> Response:
            visitor = request.scope["keepfast.visitor"]
            if visitor is None:
                return self._html(request, "sign_in.html", {}, HTTPStatus.UNAUTHORIZED)
            target = request.url.path
            # Read before the page is rendered: the stream then delivers what happened meanwhile.
            last = self.database.last_sequence()
            try:
                _check_role(visitor, OPERATOR if _asks_for_sealed(request) else route.role)
                page = await run_in_threadpool(self._run_page, request, route, visitor)
            except KeepfastError as error:
                self._audit(route.method, visitor, target, str(error))
                return self._error_page(request, error)
            self._audit(route.method, visitor, target, "done")
            if page.goto:
                return _goto(request, page.goto)
            return self._html(request, page.template, {**page.values, "last": last})

        return answer

    def _run_page(self, request: Request, route: page_types.Route, visitor: Visitor) -> page_types.Page:
        fields = (
            request.scope["keepfast.form"]
            if route.method == "POST"
            else page_types.fields_of(request.scope["query_string"])
        )
        with opened(self.build, self.now, self.make_runtime, self.config) as backend:
            words = self._words(request)
            page_request = page_types.PageRequest(
                backend, self.database, request.path_params, fields, visitor, words, self.doctor, self.home
            )
            backend.opens_sealed = _asks_for_sealed(request)
            page = route.run(page_request)
            self._audit_sealed(request, backend)
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
            return JSONResponse({"success": True, "data": to_json(result)})

        return answer

    def _run_operation(self, request: Request, operation: api.Operation) -> Any:
        body = request.scope.get("keepfast.body", b"")
        values = api.read_values(operation, request.path_params, request.scope["query_string"], body)
        with opened(self.build, self.now, self.make_runtime, self.config) as backend:
            if operation.changes:
                values["by"] = request.scope["keepfast.visitor"].role
            backend.opens_sealed = _asks_for_sealed(request)
            result = operation.run(backend, values)
            self._audit_sealed(request, backend)
            return result

    def _audit_sealed(self, request: Request, backend: Backend) -> None:
        """Record in the audit trail which sealed contents are about to be shown."""
        for path in backend.shown_sealed:
            self.database.audit(
                request.scope["keepfast.visitor"], OPENED, f"{request.url.path}?path={show(path)}", "done"
            )

    def _audit(self, method: str, visitor: Visitor, target: str, outcome: str) -> None:
        if method != "GET":
            self.database.audit(visitor, method, target, outcome)

    # The stream

    async def _events(self, request: Request) -> Response:
        if request.scope["keepfast.visitor"] is None:
            return _failure(HTTPStatus.UNAUTHORIZED, "Not signed in, or the session has ended.", "unauthorized")
        since = _since(request)
        events = await run_in_threadpool(self.database.events_since, since)
        return JSONResponse(
            {"success": True, "data": [as_json(one) for one in events], "last": self.database.last_sequence()}
        )

    async def _stream_events(self, request: Request) -> Response:
        if request.scope["keepfast.visitor"] is None:
            return _failure(HTTPStatus.UNAUTHORIZED, "Not signed in, or the session has ended.", "unauthorized")
        if len(self.stream.listeners) >= MAX_STREAMS:
            return _failure(HTTPStatus.SERVICE_UNAVAILABLE, "Too many open event streams.", "busy")
        visitor, by_proxy = request.scope["keepfast.visitor"], request.scope["keepfast.by_proxy"]
        lines = self.stream.listen(
            _since(request),
            request.path_params.get("task", ""),
            visitor.hash,
            lambda: by_proxy or self.database.is_current(visitor),
        )
        return StreamingResponse(lines, media_type="text/event-stream")

    # Signing in and out

    async def _sign_in(self, request: Request) -> Response:
        assert self.gate is not None
        form, plain = request.scope["keepfast.form"], bool(request.scope["keepfast.form"])
        try:
            ticket = form.get("ticket") or json.loads(request.scope["keepfast.body"] or b"{}").get("ticket")
        except (ValueError, AttributeError, RecursionError):
            return _failure(HTTPStatus.BAD_REQUEST, "The body is not a JSON object.", "usage")
        agent = request.headers.get("user-agent", "a program")
        credential = ticket if isinstance(ticket, str) else ""
        client, session = request.scope.get("client"), None
        is_ticket = self.database.has_ticket(credential.strip())
        is_right = is_ticket or (self.gate.may_guess(request.scope) and self._is_password(credential))
        # Of local users only the one who runs the page may sign in: a stolen ticket is useless to others.
        if is_right and not users.is_another(client):
            user = users.of(client)
            session = self.database.exchange_ticket(credential.strip(), agent, user) if is_ticket else None
            session = session or (None if is_ticket else self.database.create_session(OPERATOR, agent, user))
        if session is None:
            try:
                self.gate.count_wrong_guess(request.scope)
            except Refusal as refusal:
                return _failure(refusal.status, refusal.text, "refused", headers=refusal.headers)
            self.database.audit(None, "POST", "/session", "refused")
            text = "The sign-in code is invalid, expired or already used."
            if plain:
                return self._html(request, "sign_in.html", {"wrong": text}, HTTPStatus.UNAUTHORIZED)
            return _failure(HTTPStatus.UNAUTHORIZED, text, "unauthorized", "Run `keepfast serve --link` for a new one.")
        visitor = self.database.visitor(session)
        assert visitor is not None
        self.database.audit(visitor, "POST", "/session", "entered")
        folder, cookie = split_session(session)
        response: Response = RedirectResponse(f"{folder}/", HTTPStatus.SEE_OTHER)
        if not plain:
            answer = {"role": visitor.role, "session": session, "folder": folder}
            response = JSONResponse({"success": True, "data": answer})
        secure = request.scope["keepfast.secure"]
        response.set_cookie(
            cookie_name(secure), cookie, max_age=self.database.session_days * 86_400, httponly=True, samesite="lax",
            secure=secure, path=cookie_path(secure, folder),
        )  # fmt: skip
        return response

    def _is_password(self, text: str) -> bool:
        password = self.password()
        return bool(password) and compare_digest(text.encode("utf-8", "replace"), password.encode())

    async def _sign_out(self, request: Request) -> Response:
        self.database.end_session(request.scope["keepfast.visitor"])
        self.stream.end_of(request.scope["keepfast.visitor"].hash)
        response = RedirectResponse("/", HTTPStatus.SEE_OTHER)
        secure = request.scope["keepfast.secure"]
        path = cookie_path(secure, request.scope["keepfast.folder"])
        response.delete_cookie(cookie_name(secure), path=path, secure=secure, httponly=True, samesite="lax")
        return response

    async def _language(self, request: Request) -> Response:
        back = request.scope["keepfast.form"].get("back", "/")
        # Only our own paths: `//elsewhere` and `/\elsewhere` would redirect to other hosts.
        safe = back if back.startswith("/") and back[1:2] not in ("/", "\\") else "/"
        response = _goto(request, safe)
        language = chosen(request.scope["keepfast.form"].get("language", ""), "")
        response.set_cookie(LANGUAGE, language, max_age=365 * 86_400, httponly=True, samesite="lax", path="/")
        return response

    # Answers

    def _html(self, request: Request, name: str, values: Any, status: int = HTTPStatus.OK) -> Response:
        visitor = request.scope.get("keepfast.visitor")
        words = self._words(request)
        text = self.templates.get_template(name).render(
            _=words,
            language=words.language,
            visitor=visitor,
            token=self.database.form_token(visitor) if visitor is not None else "",
            now=self.now(),
            session_folder=request.scope["keepfast.folder"],
            here_path=request.url.path + (f"?{request.url.query}" if request.url.query else ""),
            version=__version__,
            **{
                "wrong": "",
                "damaged": False,
                "back": "/",
                "last": self.database.last_sequence() if visitor is not None else 0,
                **values,
            },
        )
        text = in_session_folder(text, request.scope["keepfast.folder"])
        return Response(text.encode("utf-8", "replace"), status, media_type="text/html; charset=utf-8")

    def _error_page(self, request: Request, error: KeepfastError) -> Response:
        status = _status(error)
        values = {"text": str(error), "hint": error.hint, "status": status, "damaged": isinstance(error, Damaged)}
        return self._html(request, "error.html", {**values, "back": _back(request)}, status)

    def _words(self, request: Request) -> Words:
        return Words(chosen(request.cookies.get(LANGUAGE, ""), request.headers.get("accept-language", "")))

    def _refuse(self, scope: Scope, refusal: Refusal) -> ASGIApp:
        request = Request(scope)
        scope["keepfast.visitor"] = None
        if "location" in refusal.headers:
            answer = Response(b"", refusal.status)
        elif refusal.text == WHERE_THE_PAGE_IS and not scope["path"].startswith(("/api/", "/session")):
            answer = self._html(request, "unknown_host.html", {}, refusal.status)
        elif scope["path"].startswith(("/api/", "/session")) or refusal.status == HTTPStatus.MISDIRECTED_REQUEST:
            answer = _failure(refusal.status, refusal.text, "refused")
        elif refusal.status == HTTPStatus.UNAUTHORIZED:
            answer = self._html(request, "sign_in.html", {}, refusal.status)
        else:
            answer = self._html(
                request, "error.html", {"text": refusal.text, "hint": "", "status": refusal.status}, refusal.status
            )
        answer.headers.update(refusal.headers)
        return answer

    async def _not_found(self, request: Request, error: Any) -> Response:
        status = error.status_code
        text = "Page not found." if status == HTTPStatus.NOT_FOUND else "Method not allowed."
        if request.url.path.startswith("/api/"):
            return _failure(status, text, "not_found" if status == HTTPStatus.NOT_FOUND else "usage")
        return self._html(request, "error.html", {"text": text, "hint": "", "status": status}, status)

    async def _internal_error(self, request: Request, error: Exception) -> Response:
        short = shortage(error)
        text = f"Internal error: {type(error).__name__}. Nothing was lost; please report it."
        if short is not None:
            text = str(short)
        if request.url.path.startswith("/api/"):
            return _failure(HTTPStatus.INTERNAL_SERVER_ERROR, text, "failed")
        values = {"text": text, "hint": "", "status": 500}
        return self._html(request, "error.html", values, HTTPStatus.INTERNAL_SERVER_ERROR)

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
    """Return the page that the visitor came from, if it is ours; else the workspace, the task or the overview."""
    referer = urlsplit(request.headers.get("referer", ""))
    path = referer.path.removeprefix(request.scope["keepfast.folder"])
    if (
        referer.netloc.lower() == request.headers.get("host", "").lower()
        and path.startswith("/")
        and path != request.url.path
    ):
        return f"{path}?{referer.query}" if referer.query else path
    parts = request.path_params
    return f"/w/{parts['workspace']}" if "workspace" in parts else f"/t/{parts['task']}" if "task" in parts else "/"


def _goto(request: Request, path: str) -> Response:
    """Redirect to another page of the same session."""
    return RedirectResponse(request.scope["keepfast.folder"] + path, HTTPStatus.SEE_OTHER)


def _asks_for_sealed(request: Request) -> bool:
    """Return whether a GET request asks for sealed contents; the role check and `Contents` both use this."""
    return request.method == "GET" and page_types.fields_of(request.scope["query_string"]).get("sealed") == "true"


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
