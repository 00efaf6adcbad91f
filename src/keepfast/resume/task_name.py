"""The name of the current task: the plan, the to-do in progress, or the request that a short follow-up belongs to."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from keepfast.agents.turns import PLAN, RUN, TASK, TODO, Turn
from keepfast.resume import phrases
from keepfast.resume.notes import BETWEEN
from keepfast.secrets.cuts import head

STRONG, WEAK, WHOLE = 3, 2, 5
"""Numbers of significant words: enough to stand alone, enough if nothing better is there, and enough in spite of `it` or `that`."""
MAX_REFERRING_WORDS = 20
"""A prompt of fewer words that says `it` or begins with `no` refers to what was said before."""
LOOKED_AT, SHOWN = 4_000, 120
"""How many characters of a prompt are read, and of its title are searched for significant words: a summary is short."""
MAX_CHARACTERS, MAX_HEAD_CHARACTERS, MAX_TAIL_CHARACTERS = 300, 200, 90
BACK, MAX_FILES = 12, 3
MAX_PATH_CHARACTERS = 24
"""A path up to this length is named with its folders."""
MIN_WORDS = 8
"""Words of a paragraph that says more than the line which announces it."""
PROSE, TITLE, LISTED = "prose", "title", "listed"

WORD = re.compile(r"(?<![\w'’-])[^\W\d_][\w'’.:-]*")
LINK = re.compile(r"https?://\S+|(?:[\w.@~+-]*/)+(?=[\w.@+-])")
CHANGE = re.compile(r"/(?:pull|issues?|merge_requests|discussions|commit|browse|ticket)s?/")
DIGEST = re.compile(r"\b(?=[a-f]*\d)[0-9a-f]{7,64}\b")
WIDE = re.compile(r"[\u3040-\u30ff\u3400-\u9fff]")
# Words that name no work: those of every sentence, those of agreeing, and those of the routine around any change.
EMPTY = frozenset(
    """a an the this that these those it its them they there here he she i you we me my your our us is are was were be
    been being am do does did done doing don't doesn't didn't isn't aren't have has had having can can't could
    couldn't should would wouldn't will won't shall may might must to of in on at by for from with without into onto
    about as and or but so if then than else not no nope yes yep yeah ok okay sure please thanks thank great good nice
    cool perfect fine right well oh ah hmm just also too now again still more most some any all both each every one
    two three first second next last other another same such very really against around actually maybe let lets let's
    i'll i'm i'd i've it's that's there's we'll we're you're what what's which who how why when where whether go going
    ahead continue proceed carry start begin keep try get got make making use using want wants wanted need needs like
    think see look looks looking take taking check checked know sounds say said tell give put thing things stuff way
    work works working lot bit able back out off up over down only even already yet later instead wait sorry hi hello
    hey add added fix fixes fixed change changes changed update updated implement implemented following plan plans
    task tasks phase phases step steps part point points above below everything something anything code file files
    line lines
    commit commits committed comit push pushed pull pr prs merge merged conflict conflicts branch branches rebase main
    master origin remote upstream base draft message title description comment comments feedback suggestion
    suggestions run rerun test tests testing tested lint linting linter fmt format formatting build ci checks verify
    pass passes passing fail fails failing failed failure error errors issue issues problem problems bug bugs review
    reviews ready finish finished complete completed answer answers question questions option options retry resume
    stop stage staged unstaged deploy ship submit save undo revert correct wrong agree double since quite while until
    before after during between through because though although however perhaps probably pretty almost enough few many
    much less least own once ever never always often usually currently basically simply totally kind sort feel guess
    seem seems happen happens happened come comes came gone went makes made takes took gets getting puts giving gave
    given looked saw seen thought thinking knew knows known tried trying wanting needed needing used uses show shows
    showing bring talk tells telling asked ask umm um uh emm anyway etc today tomorrow yesterday minute moment time
    times whole rest left real sense better best worse bad big small long short new old something's nothing none copy
    paste cannot""".split()
)
ROLE = re.compile(r"^\W*(?:you are an? |your (?:job|role|task) is )", re.I)
POINTING = re.compile(r"\b(?:it|them|they|this|that|these|those|both)\b", re.I)
LEADING = re.compile(
    r"^\W*(?:no|nope|nah|not|yes|yep|yeah|ok|okay|right(?! now)|ah|hmm|oh|wait|or|but|and|also|so|then|instead|actually|what about"
    r"|how about|perfect|great|good|nice|cool|sure|thanks|done|next)\b[\s,.:!–—-]*",
    re.I,
)
HEADING = re.compile(r"^#{1,6}\s+(?P<text>.+?)\s*#*$")
PLANNED = re.compile(r"^(?:(?:the |implementation |detailed |revised )*plan\s*[:–—-]\s*)", re.I)
TASK_TITLE = re.compile(r"#{1,6}\s+task\s*[:–—-]\s*(?P<title>\S.*)(?:\n+|\Z)", re.I)
"""A heading with which our supervisor, and people, begin a task: the work follows it, in however few words."""
ATTACHED = re.compile(r"\[(?:Image|Pasted text) #\d+[^\]\n]*\][ \t]*")
"""What the client inserts for an attached picture or long text."""
FRONT_MATTER = re.compile(r"\s*(?:Base directory for this skill:[^\n]*\s+)?---[ \t]*\n(.*?)\n---[ \t]*(?:\n|\Z)", re.S)
DESCRIPTION = re.compile(r"^description:[ \t]*(?P<text>[^\s>|].*)", re.M)
COMMAND = re.compile(r"/[A-Za-z][\w:-]*(?:\s|\Z)")
"""A slash command, and not a path."""
ITEM = re.compile(r"^\s*(?:[-*•]|\d{1,2}[.)])\s+")
# Output of programs, patches, tables, frames: not written by a person.
OUTPUT = re.compile(
    r"^\s*(?:\[(?!P?\d\])[\w:./ -]{1,40}\]|[$❯➜%»]\s|>{1,3}\s|={3,}|-{3,}|\+{3}|@@|[+|│├└╰╭┌╔║{}<]|\d+ ?[|+]|\^|~{2,}"
    r"|(?:ok|FAIL|PASS|SKIP|RUN|ERROR|WARN(?:ING)?|INFO|DEBUG)\b[:\s]"
    r"|(?i:error|fatal|warning|panic|remote|npm ERR!|exception)\b[:!]"
    r"|(?:Username|Password) for |exit status |create mode "
    r"|Traceback|at \S+ ?\(|File \"|\d{4}-\d\d-\d\d[T ]|\d\d:\d\d:\d\d|[\w./@+-]+:\d+(?::\d+)?[:\s]|[A-Za-z]:\\|\"\w+\": )"
)
FAULT = re.compile(
    r"(?i:\bfail(?:ed|ure|s)?\b|\berrors?\b|\bfatal\b|\bpanic\b|exception\b|denied|not found|cannot|undefined|unable)|✗|✖|×|❌"
)
PATH = re.compile(r"(?<![\w:/])(?:~|\.{0,2})/(?:[\w.@+-]+/)+([\w.@+-]+)")
COMMITTED = re.compile(
    r"\bgit commit\b.*?(?:-m|--message[= ])\s*(?:\"\$\(cat <<-?\s*['\"]?\w+['\"]?\n\s*|[\"'])(?P<text>[^\"'\n]{8,200})"
    r"|\bgh pr create\b.*?--title[= ][\"'](?P<title>[^\"'\n]{8,200})",
    re.S,
)
GENERAL = re.compile(
    r"^\W*(?:(?:the|key|main|final|quick|current|remaining|open|next) )*"
    r"(?:summary|overview|changes|what|results?|analysis|findings?|details|conclusion|issues?|problems?|triage|steps?|status|recommend\w*|insights?|notes?|how|why|files?|tests?)\b",
    re.I,
)
PERSON = re.compile(
    r"^(?:please|can|could|would|should|do|does|did|is|are|why|how|what|when|fix|i|we|you|let)\b.{8,}|.{8,}[?？]$", re.I
)
PLAIN = re.compile(r"(?<!\S)[A-Za-z]+(?!\S)")
CODE = re.compile(r"[(\[]\S*[)\]]|\s[:=!<>]?=\s|=>|->|::")
CODE_ENDS = ("{", "}", ";", "\\", "(", "),")


def name(
    marks: Sequence[Turn],
    tasks: list[tuple[str, str]],
    *,
    answers: Sequence[str] = (),
    files: Sequence[str] = (),
    title: str = "",
    branch: str = "",
    before: str = "",
) -> str:
    """Return the name of the current task in one line; "" if nothing was asked for.

    `marks`: prompts, commands and significant calls, in their order; `title`: what the client or its user calls the session;
    `files`: the names of those at work, the newest first; `before`: the work that the session was resumed from, which goes on
    until something says by itself what is wanted now.
    """
    hints = _Hints()
    work = _stated(marks, tasks, hints)
    if work or before:
        return join(work or before.partition(BETWEEN)[0], hints.newest)
    base = (
        hints.leaning or _called(title) or _committed(marks) or _reported_heading(answers) or hints.skill or hints.weak
    )
    newest = hints.newest or hints.command
    if base and newest not in base:
        return join(base, newest)
    base = base or " ".join([words for words in (hints.command, hints.newest) if words]) or _first(answers, WEAK)
    if not hints.command and weight(base) >= WEAK and not ROLE.match(base):
        return join(base, "")
    return _with_surroundings(base, answers, files, branch) or join(title, "")


@dataclass(slots=True)
class _Hints:
    """Words of turns that do not name the work by themselves; the newest of each kind."""

    newest: str = ""
    leaning: str = ""  # enough words, but refers to what was said before
    weak: str = ""
    command: str = ""
    skill: str = ""  # what a command stands for, by its own heading

    def add(self, turn: Turn, words: str) -> None:
        """Note the words of a prompt or command that is older than those noted before."""
        if turn.kind == "command":
            skill = _skill_title(turn.body)
            if weight(skill) >= WEAK and not ROLE.match(skill):
                self.skill = self.skill or skill
                if " " not in turn.text.strip():
                    return  # its bare name tells nothing more
            self.command = self.command or (words if " " in turn.text.strip() else turn.text.strip())
        elif not phrases.NOD.match(turn.text.strip()):
            self.newest = self.newest or words
            if weight(words) >= STRONG:
                self.leaning = self.leaning or words
            elif weight(words) >= WEAK:
                self.weak = self.weak or words


def _stated(marks: Sequence[Turn], tasks: list[tuple[str, str]], hints: _Hints) -> str:
    """Return the name of the work by the newest turn that stands alone; newer turns go into `hints`."""
    is_list_newer = True  # than all that was looked at
    for turn in reversed(marks):
        if turn.call is None:
            words, titled = _title_words(turn.text)
            if stands_alone(turn.text, words) or (titled and (weight(words) >= WEAK or TASK_TITLE.match(turn.text))):
                return words
            hints.add(turn, words)
        elif turn.call.act == PLAN:
            if plan := _planned(turn):
                return plan
        elif turn.call.act in (TODO, TASK) and is_list_newer:
            is_list_newer = False
            doing = next((text for status, text in tasks if status == "in_progress" and text), "")
            hints.newest = hints.newest or doing
            if weight(doing) >= STRONG:
                return doing
    return ""


def _with_surroundings(base: str, answers: Sequence[str], files: Sequence[str], branch: str) -> str:
    """Return the few words with the branch, the files, or the agent's own words."""
    if weight(_spoken(branch)) >= WEAK:
        return join(base, f"branch {branch}")
    if files:
        return join(base or "Work", ", ".join(files[:MAX_FILES]))
    return base if weight(base) >= WEAK else join(_first(answers, STRONG), base)


def follow(before: str, prompt: str) -> str:
    """Return the task of a prompt, given only the task before it."""
    words, titled = _title_words(prompt)
    if stands_alone(prompt, words) or titled or not before:
        return join(words, "")
    return join(before.partition(BETWEEN)[0], "" if phrases.NOD.match(prompt.strip()) else words)


def join(base: str, newest: str) -> str:
    """Return the work, followed by the newest words about it if they differ."""
    base, newest = _clipped(base, MAX_CHARACTERS), _clipped(newest, MAX_CHARACTERS)
    if not base or not newest or newest in base:
        return base or newest
    return _clipped(base, MAX_HEAD_CHARACTERS) + BETWEEN + _clipped(newest, MAX_TAIL_CHARACTERS)


def weight(text: str) -> int:
    """Return the number of different significant words in the part of the text that a summary can show."""
    bare = DIGEST.sub(" ", LINK.sub(_named, text[:SHOWN].lower()))
    words = {word.rstrip(".:'’-") for word in WORD.findall(bare)}
    wide = len(WIDE.findall(text[:SHOWN]))
    return sum([1 for word in words - EMPTY if len(word) > 1 and not word.isdigit()]) + wide // 3


def _named(match: re.Match[str]) -> str:
    """Return the words that a link or path counts as: a path its last name, a link one word, one to an issue or change three."""
    if not match[0].startswith("http"):
        return " "
    return " link number changeset " if CHANGE.search(match[0]) else " link "


def stands_alone(text: str, words: str) -> bool:
    """Return whether the prompt names the work by itself; `words` is its heading."""
    word_count = weight(words)
    if word_count < STRONG or (_is_pasted(text) and words == _pasted(text)):
        return False
    if ROLE.match(words):
        return False
    if len(words.split()) >= MAX_REFERRING_WORDS or word_count >= WHOLE:
        return True
    return not (POINTING.search(words) or LEADING.match(text))


def heading(text: str) -> str:
    """Return the words of a prompt that name the work: its first significant sentence, without greetings and pasted output."""
    return _title_words(text)[0]


def _skill_title(body: str) -> str:
    """Return what a command or skill says that it does: its heading, or the description of its front matter."""
    matter = FRONT_MATTER.match(body)
    if matter is None:
        return _title_words(body)[0]
    words = _title_words(body[matter.end() :])[0]
    description = DESCRIPTION.search(matter[1])
    if description is None or (weight(words) >= WEAK and not ROLE.match(words)):
        return words
    return _title_words(description["text"].strip("\"' "))[0]


def _title_words(text: str) -> tuple[str, bool]:
    """Return the words that name the work, and whether they are a title over the rest."""
    text = ATTACHED.sub("", head(text, LOOKED_AT)).strip()
    if COMMAND.match(text):
        return _spoken(text), False
    if _is_pasted(text):
        return _asked_below(text) or _pasted(text), False
    task = TASK_TITLE.match(text)
    if task:
        words = task["title"] if weight(task["title"]) >= WEAK else _title_words(text[task.end() :])[0]
        return words or task["title"], True
    return _title_words_in_prose(text)


def _asked_below(text: str) -> str:
    """Return the last line below pasted output if a person wrote it, else ""."""
    last = text.rpartition("\n")[2].strip()
    return last if PERSON.match(last) and not _is_output(last) and weight(last) >= WEAK else ""


def _title_words_in_prose(text: str) -> tuple[str, bool]:
    """Return the first paragraph with enough significant words, or the line that announces a list; else the best."""
    announced = best = ""
    titles = 0
    for paragraph, kind in _paragraphs(text):
        words = _significant_part(paragraph)
        titles += kind == TITLE
        if announced and kind == LISTED:
            break
        if kind == TITLE and titles == 1 and weight(words) >= WEAK:
            return words, True
        if weight(words) < STRONG:
            best = max(best, words, key=weight)
        elif not announced and paragraph.endswith((":", "：")) and weight(words) < WHOLE:
            announced = words.rstrip(":： ")
        elif not announced or (weight(words) >= WHOLE and len(words.split()) >= MIN_WORDS):
            return words, False
    return announced or best or _pasted(text), False


def _paragraphs(text: str) -> Iterable[tuple[str, str]]:
    """Yield paragraphs of prose, headings and items of lists, each as one line with its kind."""
    held_lines: list[str] = []
    kind = PROSE
    fenced = printed = pasted = False
    for line in [*text.split("\n"), ""]:
        bare = line.strip()
        if bare.startswith("```"):
            fenced = not fenced
            bare = ""
        title, item = HEADING.match(bare), ITEM.match(bare)
        # What a program prints goes on to the next blank line.
        printed = bool(bare) and (printed or _is_output(bare))
        output = fenced or printed
        if held_lines and (not bare or title or item or output):
            paragraph = " ".join(held_lines)
            if not pasted or PERSON.match(paragraph):
                yield paragraph, kind
            held_lines, kind = [], PROSE
        pasted = pasted or printed  # what follows may be more of it, unless it speaks like a person
        if output or not bare:
            continue
        if title and not pasted:
            yield PLANNED.sub("", title["text"].replace("**", "")).strip(), TITLE
        if title:
            continue
        if item:
            kind = LISTED
            bare = bare[item.end() :]
        held_lines.append(bare.replace("**", ""))


def _is_output(line: str) -> bool:
    if OUTPUT.match(line):
        return True
    plain = len(PLAIN.findall(line))
    return (plain < MIN_WORDS // 2 and line.endswith(CODE_ENDS)) or (plain < WEAK and CODE.search(line) is not None)


def _is_pasted(text: str) -> bool:
    """Return whether the text begins with output of a program."""
    return _is_output(text.strip().partition("\n")[0].strip())


def _significant_part(paragraph: str) -> str:
    """Return the paragraph from its first significant sentence on; all of it if there is none."""
    parts = [part for part in phrases.SENTENCE.split(paragraph) if part.strip()]
    for at, part in enumerate(parts):
        if weight(part) < WEAK and len(part.split()) < MIN_WORDS:
            continue  # "Okay, not bad."
        rest = " ".join([one.strip() for one in parts[at:]])
        bare = LEADING.sub("", rest)
        return PATH.sub(_end_of_path, bare if weight(bare) >= STRONG else rest)
    return paragraph


def _pasted(text: str) -> str:
    """Return the first line of pasted output that names a failure, else its first line."""
    lines = [" ".join(line.split()) for line in text.split("\n") if line.strip(" \t`=-{}[]()<>|")]
    chosen = next((line for line in lines if FAULT.search(line) and weight(line)), lines[0] if lines else "")
    return PATH.sub(_end_of_path, chosen.lstrip("$❯> -"))


def _end_of_path(match: re.Match[str]) -> str:
    """Return a long path's last name: the folders would take the place of words in a summary."""
    return match[0] if len(match[0]) <= MAX_PATH_CHARACTERS else match[1]


def _planned(turn: Turn) -> str:
    """Return the title of a plan that was not refused."""
    call = turn.call
    if call is None or not call.done or call.failed:
        return ""
    plan = call.input.get("plan")
    title = heading(plan) if isinstance(plan, str) else ""
    return title if weight(title) >= WEAK else ""


def _called(title: str) -> str:
    words = title if " " in title else _spoken(title)
    return words if weight(words) >= WEAK else ""


def _spoken(name: str) -> str:
    """Return the name of a branch, a session or a command, with blanks between its words."""
    first, blank, rest = name.lstrip("/").partition(" ")
    return re.sub(r"[-_/:]+", " ", first) + blank + rest


def _reported_heading(answers: Sequence[str]) -> str:
    """Return the newest heading over what the agent reports."""
    for text in reversed(answers[-BACK:]):
        for line in text.split("\n"):
            match = HEADING.match(line.strip()[:MAX_CHARACTERS])
            if match and not GENERAL.match(match["text"]) and weight(match["text"]) >= STRONG:
                return match["text"].replace("**", "").replace("`", "")
    return ""


def _committed(marks: Sequence[Turn]) -> str:
    """Return the newest commit's subject, or a pull request's title."""
    for turn in reversed(marks):
        if turn.call is not None and turn.call.act == RUN and not turn.call.failed:
            match = COMMITTED.search(turn.call.command[:LOOKED_AT])
            if match:
                return (match["title"] or match["text"]).strip()
    return ""


def _first(answers: Sequence[str], enough: int) -> str:
    """Return the agent's first sentence with enough significant words."""
    for text in answers[-BACK:]:
        for sentence in phrases.sentences(text[:LOOKED_AT]):
            if weight(sentence) >= enough and len(sentence) < MAX_CHARACTERS:
                return next(iter(phrases.intentions(sentence)), sentence)
    return ""


def _clipped(text: str, longest: int) -> str:
    line = " ".join(text.replace(BETWEEN, " - ").split()).rstrip(":： ")
    return line if len(line) <= longest else line[: longest - 1].rstrip() + "…"
