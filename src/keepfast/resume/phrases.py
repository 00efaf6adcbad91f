"""Sentences that state a next step, a decision or an obstacle, in the languages that people speak with agents."""

from __future__ import annotations

import re

MAX_DECISION_LENGTH, MAX_WISH_LENGTH = 320, 200

# A table per kind: English, Korean, Chinese, Japanese, German, Spanish, French. A sentence counts if any row is found in it.
DECISION = re.compile(
    r"\b(?:decided (?:to|on|against|that|not)|decisions?(?: made)?:|(?:we|i)(?:'ll| will| should)? (?:go|stick) with|going with"
    r"|went with"
    r"|let'?s (?:go with|use|keep|drop|stick|not|avoid|do it)|(?:i|we) chose|chosen|opted (?:for|to)|settled on"
    r"|agreed (?:to|that|on)"
    r"|(?:i|we)(?:'ll| will) use \S+ (?:\w+ ){0,6}(?:instead|because|rather|since|so that)"
    r"|instead of \w+[^.]{0,80}(?:we|i)(?:'ll| will)"
    r"|(?:we|i)(?:'ll| will) (?:keep|not|avoid|leave) )"
    r"|하기로 (?:했|결정|함)|결정(?:했|하였|함|사항|:)|(?:을|를) 사용하기로|(?:로|으로) 가기로"
    r"|决定|採用|采用|选择了|選擇了|我们用|就用|改用"
    r"|ことに(?:し|決め|決定)|に決め|を採用"
    r"|\b(?:entschieden|entscheidung:|wir nehmen|ich nehme|wir verwenden .*(?:statt|weil))\b"
    r"|\b(?:decid(?:í|imos|ido)|optamos|vamos a usar|elegimos)\b|\b(?:décidé|nous utiliserons|on garde|on utilise)\b",
    re.I,
)
# A person's "no" or "rather" is a decision by itself.
DIRECTIVE = re.compile(
    r"(?:^|[:;,] )(?:and |but )?(?:no|nope|nah|rather|please)?[,.! ]*(?:let'?s |please |just |we should |you should )?"
    r"(?:use|keep|don'?t|do not|never|always|avoid|drop|remove|revert|skip|leave|prefer|stick|go with|make sure|only)\b"
    r"|\binstead of\b|\brather than\b|(?:지 ?(?:마(?:세요|라|십시오)?|말)|말고|대신)|(?:不要|别用|改成|而不是)|(?:nicht|statt"
    r"|stattdessen)\b"
    r"|(?:しないで|ではなく|代わりに)|(?:en lugar de|en vez de|au lieu de)",
    re.I,
)
BLOCKER = re.compile(
    r"\b(?:blocked (?:by|on|until)|(?:i'?m|i am|we'?re|we are) (?:\w+ )?(?:blocked|stuck)\b|(?:blocked|stuck):"
    r"|blocker|blocking issue|waiting (?:for|on)|(?:can(?:no|')t|unable to|could not"
    r"|couldn't) (?:\w+ ){0,4}(?:because|until|without|since|due)"
    r"|(?:is|are|was) (?:missing|unavailable|not available|unreachable|down)\b.{0,60}(?:so|which|until|and)"
    r"|permission denied|access denied"
    r"|need(?:s)? (?:your|you to|a decision|an? (?:api )?(?:key|token|secret|credential|approval|password))"
    r"|requires? (?:your|approval|manual)"
    r"|still (?:fail|broken|red)|keeps? failing|unresolved|stuck (?:on|at)|depends on .{0,40}(?:not|upstream|release))"
    r"|막혀|막힌|막힘|차단|대기 ?중|필요합니다.{0,20}(?:키|승인|권한|토큰)|(?:키|승인|권한|토큰)(?:이|가|을"
    r"|를)? ?필요|실패하고 있|해결되지 않"
    r"|阻塞|卡住|被阻|等待|需要(?:你|您)|缺少.{0,20}(?:密钥|权限|令牌)|仍然失败|无法.{0,30}因为"
    r"|ブロック|待ち(?:です|状態)?|必要があります.{0,20}(?:キー|承認)|失敗し(?:ています|続け)"
    r"|\b(?:blockiert|warte(?:n)? auf|fehlt (?:noch|uns)|scheitert (?:noch|weiterhin))\b"
    r"|\b(?:bloquead[oa]|esperando|falta (?:la|el)|sigue fallando)\b|\b(?:bloqué|en attente|il manque"
    r"|échoue (?:encore|toujours))\b",
    re.I,
)
# Something that was in the way and no longer is.
SOLVED = re.compile(
    r"\b(?:no longer|fixed|resolved|unblocked|not (?:blocked|stuck)|no blockers?|isn't blocked"
    r"|blockers?\W{1,6}(?:none|nothing|n/?a|no)\b|solved|now passes?|works now)\b"
    r"|해결(?:했|되었|됨|됐)|(?:已|都)?(?:解决|修复)(?:了)?|解決しました|\bgelöst\b|\bresuelto\b|\brésolu\b",
    re.I,
)
INTENTION = re.compile(
    r"^(?:\W*)(?:(?:now|next|then|first|finally|okay|ok|good|great|perfect)[,:.! ]+)*"
    r"(?:(?:now )?(?:let me|let's|i'?ll|i will|i'm going to|i am going to|i need to|i still need to|we need to"
    r"|time to|next up:?|next step:?|remaining:?|todo:?)\s+"
    r"(?:now |then |also |next |still )*)(?P<step>.+)",
    re.I | re.S,
)
NEXT = re.compile(r"(?:^\W*|[,;–—] ?|[.!?✅✓] +)(?:and )?next(?: steps?| up)?\s?:\s+(?P<step>.+)", re.I | re.S)
ABROAD = re.compile(
    r"^\W*(?:다음(?:으로|은|에는)?[,: ]*|이제 |接下来[，,: ]*|下一步[：:，, ]*|现在(?:我)?(?:要|来|需要)?"
    r"|次に[、, ]*|als nächstes:? |jetzt |nun "
    r"|ahora |a continuación,? |maintenant,? |ensuite,? )(?P<step>.+)",
    re.I | re.S,
)
HEADING = re.compile(
    r"^\W{0,6}(?:what(?:'s| is) (?:left|next|remaining)|(?:the )?(?:next|remaining|open|outstanding"
    r"|follow[- ]?up) (?:steps?|work|items?|tasks?|todos?)"
    r"|next|remaining|still to do|to ?do|left to do|다음 (?:단계|할 일|작업)|남은 (?:작업|일|단계)|할 일"
    r"|下一步(?:计划|工作)?|后续(?:步骤|工作)|待办(?:事项)?|剩余(?:工作|任务)"
    r"|次のステップ|残り(?:の作業|タスク)?|今後の作業|nächste schritte|offen|noch zu tun|próximos pasos|pendiente"
    r"|prochaines étapes|reste à faire)\W{0,6}$",
    re.I,
)
DECIDED = re.compile(
    r"^\W{0,6}(?:(?:the|our|key|main|important|design|technical|architectur(?:e|al)) ){0,2}decisions?"
    r"(?: (?:made|taken|so far)){0,2}\W{0,6}$"
    r"|^\W{0,6}(?:결정 ?(?:사항|내용)|决定(?:事项)?|決定事項|entscheidungen|decisiones(?: tomadas)?"
    r"|décisions(?: prises)?)\W{0,6}$",
    re.I,
)
BLOCKED = re.compile(
    r"^\W{0,6}(?:(?:the|open|current|known|remaining) )?blockers?\W{0,6}$"
    r"|^\W{0,6}(?:막힌 (?:점|것|일)|阻塞(?:项)?|ブロッカー|blockaden|bloqueos|blocages)\W{0,6}$",
    re.I,
)
WORD = re.compile(r"\w+")
ARTICLES = frozenset(("a", "an", "the"))
MIN_COMMON_WORDS = 2
"""Fewer words, such as `Test`, begin steps that have nothing else in common."""
LABEL = re.compile(r"^\W*(?:\w+ )?decisions?(?: made)?:\s*", re.I)
BLOCKED_LABEL = re.compile(r"^\W*(?:(?:the|open|current|known|remaining) )?blockers?\W{0,3}[:：]\W*", re.I)
NOTHING = re.compile(r"^\W*(?:none|nothing|n/?a|no|keine?|없음|无|なし|ninguno|aucun)\W*$", re.I)
ITEM = re.compile(r"^\s*(?:[-*•]|\d{1,2}[.)、]|\[[ >]\])\s+(?:\[[ ]\]\s*)?(?P<text>.+)$")
DONE_ITEM = re.compile(r"^\s*(?:[-*•]|\d{1,2}[.)、])?\s*(?:\[[xX]\]|✅|✓|~~)")
SENTENCE = re.compile(r"(?<=[.!?])\s+(?=[A-Z0-9`\"'(\[“À-Ý가-힣])|(?<=[。！？])|\n+")
# Answers that carry no task of their own.
NOD = re.compile(
    r"^\W*(?:y|yes|yep|yeah|ok|okay|k|sure|go|go ahead|go on|keep going|continue|proceed|carry on|do it|please do|sounds good|lgtm"
    r"|looks good|perfect|great|nice|thanks|thank you"
    r"|next|done|correct|right|good|cool|네|예|응|좋아요?|계속(?:해|해줘|하세요)?|진행(?:해|해줘|하세요)?|好的?|可以"
    r"|继续|是的?|对|はい|続けて|お願いします|ja|weiter|genau|sí|si|vale|sigue|continúa|oui|continue[rz]?|\d+"
    r"|/\w[\w:-]*)"
    r"(?:[,.! ]+(?:please|then|now|thanks|ahead|go ahead|go on|keep going|continue|proceed|with it|with that|그래|고마워))*\W*$",
    re.I,
)


def sentences(text: str) -> list[str]:
    """Return the text's sentences without code blocks and marks of emphasis."""
    result = []
    fenced = False
    for line in text.split("\n"):
        if line.lstrip().startswith("```"):
            fenced = not fenced
            continue
        if fenced or line.lstrip().startswith("|"):
            continue
        for part in SENTENCE.split(line.replace("**", "")):
            bare = part.strip().lstrip("#>").strip()
            if bare:
                result.append(bare)
    return result


def listed(text: str, heading: re.Pattern[str]) -> list[str]:
    """Return the items under the last such heading, without finished ones."""
    items: list[str] = []
    listing = False
    for line in text.split("\n"):
        bare = line.strip().replace("**", "")
        if not bare:
            continue
        # A sentence may stand before the heading on its line: `Done. Next steps:`
        last = SENTENCE.split(bare)[-1] if bare.endswith((":", "：")) else bare
        if heading.match(bare) or heading.match(last):
            listing, items = True, []
            continue
        item = ITEM.match(bare)
        if listing and item and not DONE_ITEM.match(bare):
            items.append(item["text"].strip())
        elif listing and not DONE_ITEM.match(bare) and not line.startswith((" ", "\t")):
            listing = False
    return [item for item in items if not NOTHING.match(item)]


def steps(text: str) -> list[str]:
    """Return the next steps: a list under such a heading and labelled sentences, else steps that sentences announce."""
    items = listed(text, HEADING)
    if not items:
        return [step for one in sentences(text) for step in intentions(one)]
    return merged(named(text), items)


def merged(announced: list[str], listed: list[str]) -> list[str]:
    """Return announced steps, then listed ones. One that begins with all words of the other is the same; the longer stays."""
    result, rest = list[str](), list(listed)
    for step in announced:
        same = next((other for other in rest if _begins_alike(step, other)), None)
        if same is not None:
            rest.remove(same)
        result.append(step if same is None else max(same, step, key=len))
    return [*result, *rest]


def _begins_alike(one: str, other: str) -> bool:
    shorter, longer = sorted(
        ([word for word in WORD.findall(text.lower()) if word not in ARTICLES] for text in (one, other)), key=len
    )
    return (len(shorter) >= MIN_COMMON_WORDS and longer[: len(shorter)] == shorter) or shorter == longer


def named(text: str) -> list[str]:
    """Return the steps after the label `Next:` in sentences that are no list items."""
    return [step for one in sentences(text) if NEXT.search(one) and not ITEM.match(one) for step in intentions(one)]


def intentions(sentence: str) -> list[str]:
    """Return the steps that a sentence announces, without the introductory words."""
    labelled = NEXT.search(sentence)
    match = labelled or INTENTION.match(sentence) or ABROAD.match(sentence)
    if match is None:
        return []
    parts = match["step"].split(";") if labelled else [match["step"]]
    bare = [part.strip().rstrip(":.… ") for part in parts]
    return [step for step in bare if 3 < len(step) < 300 and not step.endswith(("?", "？"))]


def decisions(text: str, *, is_prompt: bool = False) -> list[str]:
    """Return the decisions in a text: a list under such a heading, and sentences; in a prompt also a person's wishes."""
    items = listed(text, DECIDED)
    for sentence in sentences(text):
        if not 8 < len(sentence) <= MAX_DECISION_LENGTH or sentence.endswith(("?", "？")) or DECIDED.match(sentence):
            continue
        decides = DECISION.search(sentence)
        if is_prompt:
            decides = decides or (DIRECTIVE.search(sentence) if len(sentence) < MAX_WISH_LENGTH else None)
        if decides and not _is_item(sentence, items):
            items.append(LABEL.sub("", sentence))
    return items


def blockers(text: str) -> list[str]:
    """Return the blockers that the text names."""
    items = listed(text, BLOCKED)
    for sentence in sentences(text):
        if len(sentence) >= MAX_DECISION_LENGTH or BLOCKED.match(sentence) or _is_item(sentence, items):
            continue
        if BLOCKER.search(sentence) and not SOLVED.search(sentence):
            items.append(BLOCKED_LABEL.sub("", sentence))
    return items


def _is_item(sentence: str, items: list[str]) -> bool:
    item = ITEM.match(sentence)
    return item is not None and item["text"].strip() in items
