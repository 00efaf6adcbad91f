"""The server with one of its checks taken out: each row names the check, the change in its source, and who must notice."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any, NamedTuple

import keepfast.web as package

MODULES = (
    "sessions",
    "contents",
    "queries",
    "markup",
    "translation",
    "local_users",
    "access",
    "connection",
    "api",
    "operations",
    "request",
    "task_pages",
    "action_pages",
    "pages",
    "stream",
    "app",
    "server",
)
"""In the order in which they build on one another."""


class Mutant(NamedTuple):
    """In `module`, `old` (which stands there once) becomes `new`; the probe of that name then fails."""

    check: str
    module: str
    old: str
    new: str
    probe: str


def header(name: str) -> Mutant:
    from keepfast.web.access import HEADERS

    return Mutant(f"header {name}", "access", f'    "{name}": "{HEADERS[name]}",', "", "answers carry our headers")


def policy(part: str, instead: str = "") -> Mutant:
    return Mutant(f"policy {part}", "access", part, instead, "answers carry our headers")


MUTANTS = (
    # Where a request comes from
    Mutant("method", "access", "if method not in READING | CHANGING:", "if False:", "methods"),
    Mutant("host", "access", "if host not in self.origins:",
           'self.origins.setdefault(host, f"http://{host}")\n        if False:', "foreign host"),
    Mutant("our name is for those who may know it", "access", "if ticket or self._visitor(", "if True or self._visitor(",
           "a stranger by another name"),
    Mutant("a ticket that leads home is valid", "access", "if ticket and not self.database.has_ticket(ticket):", "if False:", "a wrong ticket by another name"),
    Mutant("a ticket that leads home ends", "sessions", "hash = ? AND until > ?", "hash = ? AND until + ? > 0", "an old ticket by another name"),
    Mutant("guesses by another name", "access", "            self.count_wrong_guess(scope)\n            ticket", "            ticket",
           "many wrong tickets by another name"),
    Mutant("site", "access", 'if site not in ("same-origin", "none") and not (method == "GET" and mode == "navigate"):',
           "if False:", "cross-site request"),
    Mutant("site of a form", "access", 'method == "GET" and mode == "navigate"', 'mode == "navigate"', "cross-site form"),
    Mutant("origin", "access", "if origin is not None and origin != self.origins[host]:", "if False:", "foreign origin"),
    Mutant("origin is told", "access", 'if "origin" not in headers:', "if False:", "cookie without origin"),
    Mutant("websocket", "access", 'if scope["type"] != "http":', 'if scope["type"] == "never":', "websocket"),
    Mutant("headers once", "access", "if key in headers and key in once:", "if False:", "two origins"),
    Mutant("two lengths", "access", 'if "transfer-encoding" in headers and "content-length" in headers:', "if False:", "two lengths"),
    # Who it is
    Mutant("session", "access", "visitor = self.database.visitor(session) if session else None",
           'visitor = Visitor("operator", "anybody", "0" * 64)', "nobody reads"),
    Mutant("a session is for the user who signed in", "access", "visitor.user == users.of(", "True or users.of(",
           "another user of this machine"),
    Mutant("signing in notes the user", "app", 'user = users.of(client)', "user = None", "who signed in is noted"),
    Mutant("sockets that were closed are nobody's", "local_users", "row[0] == ESTABLISHED", "True", "a socket of nobody"),
    Mutant("signed in", "access", 'elif scope["method"] in CHANGING and scope["path"] != "/session":', "elif False:", "nobody posts"),
    Mutant("static is all that is open", "access", 'scope["path"].startswith("/static/")', 'scope["path"].startswith("/")',
           "nobody reads"),
    Mutant("pages need a visitor", "app", 'if visitor is None:\n                return self._html(request, "sign_in.html"',
           'if False:\n                return self._html(request, "sign_in.html"', "nobody sees a page"),
    Mutant("operations need a visitor", "app",
           "if visitor is None:\n                return _failure(HTTPStatus.UNAUTHORIZED", "if False:\n                return _failure(401",
           "nobody reads"),
    Mutant("events need a visitor", "app",
           'async def _events(self, request: Request) -> Response:\n        if request.scope["keepfast.visitor"] is None:',
           "async def _events(self, request: Request) -> Response:\n        if False:", "nobody asks for events"),
    Mutant("the stream needs a visitor", "app",
           'async def _stream_events(self, request: Request) -> Response:\n        if request.scope["keepfast.visitor"] is None:',
           "async def _stream_events(self, request: Request) -> Response:\n        if False:", "nobody listens"),
    Mutant("the document needs a visitor", "app",
           'async def _document(self, request: Request) -> Response:\n        if request.scope["keepfast.visitor"] is None:',
           "async def _document(self, request: Request) -> Response:\n        if False:", "nobody reads the document"),
    Mutant("token against forgery", "access",
           'if not hmac.compare_digest(sent.encode("utf-8", "replace"), self.database.form_token(visitor).encode()):', "if False:",
           "no token"),
    Mutant("token of this session", "sessions", "visitor.hash.encode(), hashlib.sha256", 'b"all", hashlib.sha256', "another's token"),
    Mutant("role of pages", "app", "_check_role(visitor, OPERATOR if _asks_for_sealed(request) else route.role)", "pass", "a viewer saves by form"),
    Mutant("role of operations", "app", "_check_role(visitor, OPERATOR if _asks_for_sealed(request) else operation.role)", "pass", "a viewer saves"),
    Mutant("sealed pages are an operator's", "app", "OPERATOR if _asks_for_sealed(request) else route.role", "route.role",
           "a viewer opens what is sealed"),
    Mutant("sealed contents are an operator's", "app", "OPERATOR if _asks_for_sealed(request) else operation.role", "operation.role",
           "a viewer opens what is sealed"),
    Mutant("sealed files are closed", "contents", "        if not self._may_show(path, entry):\n", "        if False:\n", "what is sealed"),
    Mutant("sealed lines are closed", "contents", '        if file.sealed:\n', "        if False:\n", "what is sealed"),
    Mutant("sealed before counts", "contents", "self._may_show(change.path, change.old, change.new)",
           "self._may_show(change.path, change.new)", "what was sealed once"),
    Mutant("sealed after counts", "contents", "self._may_show(change.path, change.old, change.new)",
           "self._may_show(change.path, change.old)", "what is sealed"),
    Mutant("opening is recorded", "app", "            page = route.run(page_request)\n            self._audit_sealed(request, backend)",
           "            page = route.run(page_request)", "opening is recorded"),
    Mutant("opening by the API is recorded", "app", "            self._audit_sealed(request, backend)\n            return result",
           "            return result", "opening is recorded"),
    Mutant("order of roles", "sessions", "return ROLES.index(self.role) >= ROLES.index(role)", "return True", "a viewer saves"),
    Mutant("a ticket once", "sessions", "DELETE FROM ticket WHERE hash = ? AND until >= ? RETURNING role",
           "SELECT role FROM ticket WHERE hash = ? AND until >= ?", "a ticket twice"),
    Mutant("a ticket ends", "sessions", "hash = ? AND until >= ? RETURNING", "hash = ? AND until + ? > 0 RETURNING", "an old ticket"),
    Mutant("a session ends", "sessions", "row[2] < now - self.session_days * DAY:", "False:", "an old session"),
    Mutant("leaving ends a session", "sessions", "DELETE FROM session WHERE hash = ?", "SELECT * FROM session WHERE hash = ?",
           "a session that was left"),
    Mutant("a session is new", "app", "session = self.database.exchange_ticket(credential.strip(), agent, user)",
           'session = request.cookies.get("keepfast_session") or self.database.exchange_ticket(credential.strip(), agent)', "a session brought along"),
    Mutant("hashes only", "sessions", 'return hashlib.sha256(value.encode("utf-8", "surrogatepass")).hexdigest()', "return value",
           "what the database holds"),
    Mutant("an empty password is none", "app", "return bool(password) and ", "return ", "the empty password"),
    Mutant("password", "app", ' and compare_digest(text.encode("utf-8", "replace"), password.encode())', "", "a wrong password"),
    # Through a proxy
    Mutant("proxy's address", "access", "if not self.is_trusted(address):", "if False:", "a proxy that is none"),
    Mutant("proxy's users", "access", "self.users.get(name)", 'self.users.get(name, "operator")', "a stranger by proxy"),
    Mutant("forgery through a proxy", "access", 'if scope["path"] == "/session" or _bearer(headers):',
           'if scope["path"] == "/session" or _bearer(headers) or "cookie" not in headers:', "a form through a proxy"),
    Mutant("proxy's header once", "access", "ONCE | {self.proxy.header}", "ONCE | set()", "two names by proxy"),
    Mutant("sender is the sender", "server", "proxy_headers=False", 'proxy_headers=True, forwarded_allow_ips="*"', "a sender that lies"),
    Mutant("no proxy on loopback", "server", "if not plain_address(text) or is_loopback(plain_address(text)):", "if False:",
           "settings: a proxy on loopback"),
    Mutant("proxies are whole", "server", "if not (stand and header and users):", "if False:", "settings: half a proxy"),
    Mutant("proxy's header is none of ours", "server", 'or header in ONCE | {"cookie"}', "", "settings: a header of ours"),
    Mutant("roles are known", "server", "if not name or role not in ROLES:", "if False:", "settings: a role that is none"),
    # The door
    Mutant("open door", "server", "    if is_loopback(host):\n        return\n", "    return\n", "door: no certificate, no password"),
    Mutant("certificate", "server", "if not (secure and (proxy", "if not ((proxy", "door: no certificate"),
    Mutant("password or proxy", "server", 'if not (secure and (proxy is not None or _password(options.get("password_file") or ""))):',
           "if not secure:", "door: no password"),
    Mutant("short password", "server", "return password if len(password) >= MIN_PASSWORD_LENGTH else \"\"", "return found", "door: short password"),
    Mutant("password of its owner", "server", "if os.fstat(file.fileno()).st_mode & 0o077:", "if False:", "door: open password file"),
    Mutant("names on loopback", "server", 'if is_loopback(name.strip("[]")):', "if False:", "settings: a shared name"),
    Mutant("names are names", "server", 'any(sign in host for sign in "/@?# \\\\")', "False", "settings: no name"),
    Mutant("the ticket's file", "server", "os.O_NOFOLLOW, 0o600), \"w\")", "os.O_NOFOLLOW, 0o644), \"w\")", "the ticket's file"),
    Mutant("the leading file", "server", "os.O_NOFOLLOW, 0o600), \"w\")", "os.O_NOFOLLOW, 0o644), \"w\")", "what a browser is started with"),
    Mutant("the database's folder", "sessions", "os.chmod(folder, 0o700)", "os.chmod(folder, 0o755)", "the database's folder"),
    Mutant("the database's file", "sessions", "os.O_CLOEXEC, 0o600))", "os.O_CLOEXEC, 0o644))", "the database's folder"),
    Mutant("a link for a database", "sessions", "os.O_NOFOLLOW | ", "", "a link for a database"),
    Mutant("a link for a folder", "sessions", " or os.path.islink(folder)", "", "a link for a folder"),
    # How much
    Mutant("length", "access", "if not length.isdecimal() or int(length) > MAX_BODY:", "if False:", "a length that lies"),
    Mutant("body", "access", "if len(body) > most:", "if False:", "a body without length"),
    Mutant("body of a stranger", "access", "MAX_BODY_WITHOUT_SESSION if scope", "MAX_BODY if scope", "a stranger's large body"),
    Mutant("a stranger's body is not waited for", "access", "        elif scope[\"method\"] in CHANGING and",
           "        elif False and", "a stranger's slow body"),
    Mutant("no body where nothing is changed", "access", 'if method in READING and (length.strip("0") or "transfer-encoding" in headers):',
           "if False:", "a reader's body"),
    Mutant("refused connections end", "access", 'refusal.headers["connection"] = "close"', "pass", "what follows a refusal"),
    Mutant("strangers' connections end", "access", "            if refused and ", "            if False and ", "what follows a stranger"),
    Mutant("body in time", "access", "asyncio.timeout(BODY_SECONDS)", "asyncio.timeout(None)", "a slow body"),
    Mutant("kinds of body", "access", "if body and kind not in (FORM, JSON):", "if False:", "a text"),
    Mutant("head in time", "connection", '        self.connected_at = self.loop.time()\n        self._set_deadline("head", HEAD_SECONDS)',
           "        self.connected_at = self.loop.time()", "a silent caller"),
    Mutant("second head in time", "connection", 'elif "head" not in self._deadlines:', "elif False:", "a second head"),
    Mutant("a deadline stays", "connection", 'elif "head" not in self._deadlines:', "else:", "a second head"),
    Mutant("a head behind another", "connection", "elif not self.is_at_work and self._has_begun():", "elif False:", "a head behind another"),
    Mutant("heads are judged", "connection", "if self.conn.their_state is h11.IDLE and (", "if False and (", "a length twice"),
    Mutant("one length", "connection", "if lengths > 1 else", "if lengths > 2 else", "a length twice"),
    Mutant("one length in a line", "connection", 'lengths += 1 + value.count(b",")', "lengths += 1", "a length and a list"),
    Mutant("versions of HTTP", "connection", 'not in (b" HTTP/1.1", b" HTTP/1.0"):', 'in ():', "an old version"),
    Mutant("line ends", "connection", 'if line[-1:] != b"\\r" or', "if", "bare line ends"),
    Mutant("folded headers", "connection", 'if line[:1] in (b" ", b"\\t"):', "if False:", "a header in two lines"),
    Mutant("answers are taken", "connection", '        super().pause_writing()\n        self._set_deadline("take", TAKE_SECONDS)',
           "        super().pause_writing()", "an answer that nobody takes"),
    Mutant("strangers make room", "connection", "if len(crowd) <= MAX_STRANGERS:", "if True:", "a crowd of strangers"),
    Mutant("visitors make room", "connection", "if len(crowd) <= MAX_SIGNED_IN:", "if True:", "a greedy visitor"),
    Mutant("who has most makes room", "connection", "(-owned[one.owner], one.connected_at)", "one.connected_at", "a greedy visitor"),
    Mutant("head", "server", "MAX_HEAD = 32 << 10", "MAX_HEAD = 32 << 20", "a large head"),
    Mutant("rate", "access", "        if left < 0:\n", "        if False:\n", "too many requests"),
    Mutant("at once", "access", "if self.requests_at_once >= MAX_AT_ONCE:", "if False:", "too many at once"),
    Mutant("at once of one", "access", "if self.requests_of_visitor[visitor.hash] >= MAX_PER_CLIENT:", "if False:", "too many of one"),
    Mutant("what was done is over", "access", "            self.requests_of_visitor[owner] -= 1\n", "            pass\n", "one by one"),
    Mutant("guesses", "access", "if not self.may_guess(scope):", "if False:", "many wrong tickets"),
    Mutant("guesses are counted", "app", "self.gate.count_wrong_guess(request.scope)", "pass", "many wrong tickets"),
    Mutant("right tickets are not guesses", "app", "agent, user) if is_ticket else None",
           "agent, user) if is_ticket and self.gate.may_guess(request.scope) else None", "a right ticket after wrong ones"),
    Mutant("passwords are guesses", "app", "self.gate.may_guess(request.scope) and ", "", "a right password after wrong ones"),
    Mutant("guesses are a peer's", "access", "len(self.wrong.get(peer_of(scope), ()))", "sum(map(len, self.wrong.values()))",
           "another peer's guesses"),
    Mutant("streams", "app", "if len(self.stream.listeners) >= MAX_STREAMS:", "if False:", "too many streams"),
    # What is answered
    *[header(name) for name in ("x-content-type-options", "x-frame-options", "cross-origin-opener-policy",
                                "cross-origin-resource-policy", "permissions-policy")],
    Mutant("header referrer-policy", "access", '"referrer-policy": "same-origin",', "", "answers carry our headers"),
    policy("default-src 'none'; "), policy("script-src 'self'", "script-src 'self' 'unsafe-inline'"),
    policy("style-src 'self'", "style-src *"), policy(" connect-src 'self';"), policy("form-action 'self'; "),
    policy("frame-ancestors 'none'; "), policy("; base-uri 'none'"),
    Mutant("cache", "access", 'b"no-store"', 'b"private"', "answers carry our headers"),
    Mutant("every answer is send_with_headers", "access", "self.refuse(scope, refusal)(scope, receive, send_with_headers)",
           "self.refuse(scope, refusal)(scope, receive, send)", "refusals carry our headers"),
    Mutant("cookie for scripts", "app", "cookie, max_age=self.database.session_days * 86_400, httponly=True",
           "cookie, max_age=self.database.session_days * 86_400, httponly=False", "the cookie"),
    Mutant("cookie for other sites", "app", 'httponly=True, samesite="lax",\n            secure=secure, path=',
           'httponly=True, samesite="none",\n            secure=secure, path=', "the cookie"),
    Mutant("cookie over TLS only", "app", "secure=secure, path=cookie_path(secure, folder),", "secure=False, path=cookie_path(secure, folder),",
           "the cookie over TLS"),
    Mutant("cookie for its folder", "access", 'return "/" if secure else folder or "/"', 'return "/"', "the cookie"),
    Mutant("halves are strangers", "sessions", 'f"{secrets.token_hex(16)}.{secrets.token_urlsafe(32)}"',
           '(lambda one: f"{one}.{one}{secrets.token_urlsafe(32)}")(secrets.token_hex(16))', "halves are strangers"),
    Mutant("the cookie is a half", "access", 'join_session(scope["keepfast.folder"], _cookie(headers, secure))', "_cookie(headers, secure)",
           "both halves"),
    Mutant("the database knows both halves", "sessions", "return f\"{folder[2:]}.{cookie}\" if folder and cookie else \"\"", "return cookie",
           "both halves"),
    Mutant("the first cookie counts", "access", "        if name == cookie_name(secure):\n            return value\n    return \"\"",
           "        if name == cookie_name(secure):\n            last = value\n    return last", "a cookie that another port set"),
    Mutant("links stay within", "app", 'text = in_session_folder(text, request.scope["keepfast.folder"])', "pass", "links stay within"),
    Mutant("arguments are public", "server", "webbrowser.open(Path(path).absolute().as_uri())", "webbrowser.open(address)",
           "what a browser is started with"),
    Mutant("cookie of one host", "access", 'return f"__Host-{COOKIE}" if secure else COOKIE', "return COOKIE", "the cookie over TLS"),
    Mutant("the way back is ours", "app", 'back if back.startswith("/") and back[1:2] not in ("/", "\\\\") else "/"', "back",
           "the way back"),
    Mutant("known files only", "app", "if name not in STATIC:", "if False:", "a file that is none of ours"),
    Mutant("escaping", "pages", "autoescape=select_autoescape(default_for_string=True, default=True)", "autoescape=False",
           "markup in names"),
    Mutant("visible signs", "pages", "visible=markup.visible,", "visible=str,", "signs in names"),
    Mutant("visible signs in contents", "markup", "        visible(line if len(line)", "        str(line if len(line)", "signs in contents"),
    Mutant("paths stay inside", "api", 'b".." in parts', "False", "paths that climb"),
    Mutant("known fields only", "api", "            if name not in operation.body:\n", "            if False:\n", "a field that is none"),
    Mutant("the audit trail", "app", "self.database.audit(visitor, method, target, outcome)", "pass", "the audit trail"),
    Mutant("refused sign-ins are audited", "app", 'self.database.audit(None, "POST", "/session", "refused")', "pass", "the audit trail"),
)  # fmt: skip


@contextmanager
def world(mutant: Mutant | None) -> Iterator[Any]:
    """The server's modules, made anew from their sources with this one change."""
    names = [f"{package.__name__}.{name}" for name in MODULES]
    true = {name: importlib.import_module(name) for name in names}
    made = dict[str, ModuleType]()
    try:
        for name in names:
            short, file = name.rpartition(".")[2], true[name].__file__ or ""
            text = Path(file).read_text()
            if mutant is not None and mutant.module == short:
                assert text.count(mutant.old) == 1, f"{mutant.check}: {text.count(mutant.old)} places in {short}"
                text = text.replace(mutant.old, mutant.new)
            module = made[short] = ModuleType(name)
            module.__file__ = file
            sys.modules[name] = module
            setattr(package, short, module)
            exec(compile(text, file, "exec"), module.__dict__)
        yield SimpleNamespace(**made)
    finally:
        sys.modules.update(true)
        for name, module in true.items():
            setattr(package, name.rpartition(".")[2], module)
