"""Knows what is secret, and keeps it out of all that prof writes and prints.

A secret is known by the name of its variable, option or key; by its form, wherever it stands (a
password in a URL, a Bearer header, `--api-key X`, the known shapes of tokens); and by its value,
where prof knows that from the environment or from the command line.
"""

from __future__ import annotations

import json
import mmap
import os
import re
import stat
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any
from urllib.parse import quote, quote_plus, unquote

REDACTED = "[redacted]"
SHORTEST = 8  # shorter values stand in files by chance: they are masked by name and form alone
LARGEST_LOG = 16 << 20  # in larger logs only values are sought, not forms
WINDOW_BYTES = 64 << 20  # as much of a file as is mapped at a time
LONGEST = 16_384  # of a line, or a private key, that is searched as one

# Variables of the environment: one of these words anywhere in the name.
SECRET_WORDS = re.compile(
    r"(?:^|_)(?:TOKEN|SECRETS?|PASS|PASSWD|PASSPHRASE|PWD|PW|PAT|CREDENTIALS?|KEYS?|AUTH|SALT"
    r"|AUTHORIZATION|COOKIE|DSN)(?:_|$)",
    re.IGNORECASE,
)
SECRET_PARTS = re.compile(
    r"SECRET|PASSWORD|PASSWD|APIKEY|CREDENTIAL|TOKEN$|(?<!BY)(?<!COM)PASS$|BINDPW|JWT|WEBHOOK"
    r"|CONN(?:ECTION)?_?STR",
    re.IGNORECASE,
)
NEVER_SECRET = frozenset({"PWD", "OLDPWD"})
# Options and keys (api-key, hf_token) end in what they are: num_key_value_heads is no key.
_ENDS = (
    r"api[-_]?key|access[-_]?key(?:[-_]?id)?|(?:secret|private|signing|account|encryption)[-_]?key"
    r"|token|password|passwd|passphrase|pwd|secret|credentials?|bindpw|sshpass|jwt|cookie|salt"
    r"|webhook(?:[-_]?url)?|connection[-_]?string|authorization"
)
SECRET_OPTION = re.compile(rf"(?:{_ENDS})$", re.IGNORECASE)
OPTION = re.compile(r"--?[A-Za-z][\w.-]*")
VARIABLE = re.compile(r"[A-Za-z_][\w.]*")
_OPTION_BEFORE = re.compile(r"(?:^|[\s=])['\"]?--?[\w-]*$")
# Numbers, switches, ${references}, special tokens of a tokenizer, and what was masked before.
PLAIN = re.compile(
    r"[-+]?[\d.,]{1,11}|true|false|yes|no|on|off|none|null||\$\{\w+\}|<[^<>]{1,40}>|\[\w+\]|\*+",
    re.IGNORECASE,
)
REFERENCE = re.compile(r"\$\{(\w+)\}")

# Each form has the groups `keep` and `hide`. All are linear in the length of the text.
_QUOTED = r"\"(?:[^\"\\\n]|\\.)+\"|'(?:[^'\\\n]|\\.)+'"
_LIKELY = r"(?=[\w.~+/=-]{0,64}\d)[\w.~+/=-]{8,}|[\w.~+/=-]{20,}"
_FORMS = (
    r"(?P<keep>://[^/\s:@\"'<>]{0,256}:)(?P<hide>[^/\s\"',;<>]{1,512})(?=@)",
    r"(?P<keep>https?://)(?P<hide>[^/\s:@\"'<>]{12,512})(?=@)",
    r"(?P<keep>authorization[\"']?\s{0,2}[:=]\s{0,2}[\"']?(?:(?:bearer|basic|token|digest)\s+)?)"
    r"(?P<hide>[^\s\"',;]+)",
    r"(?P<keep>\bbearer\s{1,2})(?P<hide>(?=[\w.~+/=-]{0,64}\d)[\w.~+/=-]{8,})",
    rf"(?P<option>(?:{_ENDS}))(?P<keep>\s{{1,2}})(?P<hide>{_QUOTED}|[^\s\"'\-][^\s\"']*)",
    rf"(?P<keep>(?:{_ENDS})[\"']?=)(?P<hide>{_QUOTED}|[^\s\"',;&(){{}}\[\]<>]+)",
    rf"(?P<keep>(?:{_ENDS})[\"']\s{{0,2}}:\s{{0,2}})(?P<hide>{_QUOTED})",
    rf"(?P<keep>(?:{_ENDS})[\"']?\s{{0,2}}[=:]\s{{0,2}})(?P<hide>{_LIKELY})",
    r"(?P<keep>[?&](?:[\w.-]{0,30}[-_.])?(?:sig|signature|key|auth)=)(?P<hide>[^\s&\"'#]+)",
    r"(?P<keep>PRIVATE KEY-----)(?P<hide>[^-]{1,16384})",
    r"(?P<keep>\b)(?P<hide>hf_[A-Za-z0-9]{16,}|gh[pousr]_[A-Za-z0-9]{16,}|github_pat_\w{20,}"
    r"|glpat-[\w-]{16,}|sk-[\w-]{20,}|xox[abprs]-[\w-]{10,}|AKIA[0-9A-Z]{16}|pypi-[\w-]{20,}"
    r"|nvapi-[\w-]{20,}|eyJ[\w-]{8,}\.[\w-]{8,}\.[\w-]*)",
)
FORMS = tuple(re.compile(form, re.IGNORECASE) for form in _FORMS)
FORMS_IN_FILES = tuple(re.compile(form.encode(), re.IGNORECASE) for form in _FORMS)
# What stands in a line that holds one of the forms; to search a log for these is much faster.
_ANCHORS = (
    *(b"://", b"authorization", b"bearer", b"key", b"token", b"passw", b"passphrase", b"pwd"),
    *(b"secret", b"credential", b"bindpw", b"sshpass", b"jwt", b"cookie", b"salt", b"webhook"),
    *(b"connection", b"sig", b"auth", b"hf_", b"ghp_", b"gho_", b"ghu_", b"ghs_", b"ghr_"),
    *(b"github_pat", b"glpat-", b"sk-", b"xox", b"akia", b"pypi-", b"nvapi-", b"eyj"),
)


@dataclass(frozen=True)
class Environment:
    """The environment that a tool and its target get.

    `withheld` are names of secret-looking variables that they do not get; `secrets` are the secret
    values that prof knows of, in all the forms they may be printed in, to be kept out of its files;
    `chosen` are names from the recipe.
    """

    variables: dict[str, str]
    withheld: tuple[str, ...]
    secrets: tuple[str, ...]
    chosen: tuple[str, ...] = ()

    def redact(self, text: str) -> str:
        """Return `text` without any secret: by value, and by form."""
        for secret in self.secrets:
            text = text.replace(secret, REDACTED)
        return redact_forms(text)

    def redact_words(self, words: Sequence[str]) -> list[str]:
        """Return a command line without any secret: also the value behind `--api-key`."""
        return [
            self.redact(word) if hidden is None else word.removesuffix(hidden) + REDACTED
            for word, hidden in _options(words)
        ]

    def redact_all(self, value: Any) -> Any:
        """Return plain data (lists, mappings, text) without any secret."""
        if isinstance(value, str):
            return self.redact(value)
        if isinstance(value, dict):
            return {self.redact_all(k): self._redact_item(str(k), v) for k, v in value.items()}
        if isinstance(value, (list, tuple)):
            if all(isinstance(item, str) for item in value):
                return self.redact_words(value)
            return [self.redact_all(item) for item in value]
        return value

    def _redact_item(self, name: str, value: Any) -> Any:
        if isinstance(value, str) and is_secret_option(name, value):
            return REDACTED
        if isinstance(value, (list, tuple)) and any(
            isinstance(item, str) and is_secret_option(name, item) for item in value
        ):
            return [REDACTED for _ in value]
        return self.redact_all(value)

    def redacted(self) -> dict[str, str]:
        """Return the recipe's variables for a record: secret-looking values redacted."""
        return {name: self.shown_value(name, self.variables[name]) for name in self.chosen}

    def shown_value(self, name: str, value: str) -> str:
        """Return the value of a variable for a record."""
        return REDACTED if looks_secret(name, value) else self.redact(value)


def choose_environment(
    user: Mapping[str, str], recipe: Mapping[str, str], asked: Any = None
) -> Environment:
    """Return the user's environment without secret-looking variables, and the recipe's on top.

    `${NAME}` in a recipe's value is taken from the user's environment: that is how a target gets a
    token without it standing in the recipe. `asked` is the whole recipe as plain data: secrets that
    stand there, on a command line, say, are known as secrets, too.
    """
    secret = {name: value for name, value in user.items() if looks_secret(name, value)}
    chosen = {
        name: REFERENCE.sub(lambda match: user.get(match[1], ""), value)
        for name, value in recipe.items()
    }
    passed = [value for name, value in chosen.items() if looks_secret(name, value)]
    values = (*secret.values(), *passed, *secrets_in(asked))
    spelled = {text for value in values for text in _spellings(value) if len(text) >= SHORTEST}
    return Environment(
        variables={n: v for n, v in user.items() if n not in secret} | chosen,
        withheld=tuple(sorted(set(secret) - set(chosen))),
        # Longest first, so that no secret is cut by one that is a part of it.
        secrets=tuple(sorted(spelled, key=lambda value: (-len(value), value))),
        chosen=tuple(chosen),
    )


def looks_secret(name: str, value: str) -> bool:
    """Tell whether a variable looks like a secret; numbers, switches and existing paths do not."""
    if any(form.search(value) for form in FORMS[:2]):  # a URL with a password or a token in it
        return True
    if name in NEVER_SECRET or not (SECRET_WORDS.search(name) or SECRET_PARTS.search(name)):
        return False
    return not (_is_plain(value) or _is_path(value))


def _is_path(value: str) -> bool:
    """Tell whether a value is the path of something that exists; no path holds a null byte."""
    if not value.startswith(("/", "~", "./")) or "\0" in value:
        return False
    return os.path.exists(os.path.expanduser(value))


def is_secret_option(name: str, value: str) -> bool:
    """Tell whether the value of an option or key (--api-key, hf_token) is a secret."""
    return SECRET_OPTION.search(name) is not None and not _is_plain(value)


def secrets_in(data: Any, name: str = "") -> set[str]:
    """Return the secrets in plain data that stands under `name`: keys, command lines, forms."""
    if isinstance(data, str):
        if is_secret_option(name, data):
            return {data}
        return {data[start:end] for form in FORMS for start, end in _hidden(form, data)}
    if isinstance(data, Mapping):
        return {found for key, item in data.items() for found in secrets_in(item, str(key))}
    if not isinstance(data, (list, tuple)):
        return set()
    words = [item for item in data if isinstance(item, str)]
    found = {hidden for _, hidden in _options(words) if hidden is not None}
    return found.union(*(secrets_in(item, name) for item in data))


@lru_cache(maxsize=1024)  # a run saves its manifest a dozen times, with the same words
def redact_forms(text: str) -> str:
    """Return `text` without what looks like a secret by its form alone."""
    for form in FORMS:
        pieces, at = [], 0
        for start, end in _hidden(form, text):
            pieces += [text[at:start], REDACTED]
            at = end
        text = "".join([*pieces, text[at:]])
    return text


def mask_file(path: Path, secrets: tuple[str, ...], *, forms: bool = False) -> int:
    """Overwrite each secret in a file with as many asterisks; return how many there were.

    The layout of binary files stays as it is: nsys 2023.4.4 reads a masked report, and SQLite keeps
    no checksums. With `forms`, for logs, also what looks like a secret by its form. A link is left
    alone: what it points to is not ours.
    """
    try:
        handle = os.open(path, os.O_RDWR | os.O_NOFOLLOW | os.O_NONBLOCK)
    except OSError:
        return 0
    with os.fdopen(handle, "r+b"):
        state = os.fstat(handle)
        if not stat.S_ISREG(state.st_mode) or not state.st_size:
            return 0
        needles = [os.fsencode(secret) for secret in secrets]
        found, longest = 0, max(map(len, needles), default=0)
        for begin in range(0, state.st_size, WINDOW_BYTES):
            length = min(WINDOW_BYTES + longest, state.st_size - begin)
            with mmap.mmap(handle, length, offset=begin) as content:
                found += sum(_mask(content, needle) for needle in needles)
                if forms and state.st_size <= LARGEST_LOG:
                    found += _mask_forms(content)
        return found


def mask_logs(folder: Path, secrets: tuple[str, ...]) -> int:
    """Mask all files of a folder that a killed run left; its logs by form, too."""
    files = [path for path in folder.rglob("*") if path.is_file()]
    return sum(mask_file(path, secrets, forms=path.suffix == ".log") for path in files)


def _mask(content: mmap.mmap, needle: bytes) -> int:
    found, at = 0, content.find(needle)
    while at >= 0:
        content[at : at + len(needle)] = b"*" * len(needle)
        found += 1
        at = content.find(needle, at + len(needle))
    return found


def _mask_forms(content: mmap.mmap) -> int:
    found = 0
    for first, last in _suspicious(content[:].lower()):
        for form in FORMS_IN_FILES:
            for start, end in _hidden(form, content, first, last):
                content[start:end] = b"*" * (end - start)
                found += 1
    return found


def _suspicious(lower: bytes) -> Iterator[tuple[int, int]]:
    """Give the lines that hold an anchor, each once and in order; long ones in pieces."""
    spans = []
    for anchor in _ANCHORS:
        at = lower.find(anchor)
        while at >= 0:
            first = lower.rfind(b"\n", max(at - LONGEST, 0), at) + 1 or max(at - LONGEST, 0)
            private = lower.startswith(b"key-----", at)
            last = lower.find(b"\n", at, at + LONGEST) if not private else at + LONGEST
            last = last if last >= 0 else min(at + LONGEST, len(lower))
            spans.append((first, last))
            at = lower.find(anchor, max(last, at + 1))
    done = 0
    for first, last in sorted(spans):
        if last > done:
            yield max(first, done), last
            done = last


def _hidden(
    form: re.Pattern[Any], text: Any, first: int = 0, last: int | None = None
) -> Iterator[tuple[int, int]]:
    """Give where the secrets of one form stand, without their quotes."""
    for match in form.finditer(text, first, len(text) if last is None else last):
        start, end = match.span("hide")
        if text[start : start + 1] in ("'", '"', b"'", b'"'):
            start, end = start + 1, end - 1
        behind_option = "option" not in form.groupindex or _OPTION_BEFORE.search(
            _text(text[max(match.start() - 48, 0) : match.start()])
        )
        if behind_option and not _is_plain(text[start:end]):
            yield start, end


def _text(value: str | bytes) -> str:
    return value.decode(errors="replace") if isinstance(value, bytes) else value


def _is_plain(value: str | bytes) -> bool:
    """Tell whether a value is none of a secret: a number, a switch, a ${reference}, masked."""
    return PLAIN.fullmatch(_text(value)) is not None


def _options(words: Sequence[str]) -> Iterator[tuple[str, str | None]]:
    """Give each word with its end that is a secret by the option or variable in front of it."""
    before = ""
    for word in words:
        name, equals, value = word.partition("=")
        if before and is_secret_option(before, word) and not word.startswith("--"):
            yield word, word
            before = ""
            continue
        before = word if not equals and OPTION.fullmatch(word) else ""
        by_option = OPTION.fullmatch(name) and is_secret_option(name, value)
        by_variable = VARIABLE.fullmatch(name) and looks_secret(name, value)
        yield word, value if equals and (by_option or by_variable) else None


def _spellings(value: str) -> Iterator[str]:
    """Give a secret as it may be printed: itself, in JSON, by repr, in a URL; parts of it alone."""
    yield value
    for spelling in (value, *_secret_parts(value)):
        yield spelling
        yield json.dumps(spelling)[1:-1]
        yield json.dumps(spelling, ensure_ascii=False)[1:-1]
        yield repr(spelling)[1:-1]
        yield quote(os.fsencode(spelling), safe="")
        yield quote_plus(os.fsencode(spelling))


def _secret_parts(value: str) -> Iterator[str]:
    """Give the parts of a secret that are secrets themselves."""
    for form in FORMS[:2]:
        for match in form.finditer(value):
            yield match["hide"]
            yield unquote(match["hide"])
    if "\n" in value:
        yield from (line.strip() for line in value.splitlines())
    try:
        data = json.loads(value)
    except (ValueError, RecursionError):
        return
    if isinstance(data, dict):
        for name, item in data.items():
            if isinstance(item, str) and looks_secret(name, item):
                yield item
                yield from _secret_parts(item)
