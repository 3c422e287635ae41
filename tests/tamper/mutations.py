"""Hostile inputs of `bench verify`, drawn from a genuine bundle: one of seven kinds, by a seed.

What nobody has signed anew must be refused; what the owner of a key has signed anew may say what he
likes, and must neither crash the verifier nor exhaust his machine.
"""

from __future__ import annotations

import base64
import json
import random
import re
import zlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import rfc8785
from cryptography import x509
from cryptography.hazmat.primitives.serialization import Encoding
from support.forger import Forgery

from appliance.records.json import sha256, to_json
from appliance.signing import dsse, keys
from appliance.signing.keys import Key
from appliance.storage import bundle

Files = dict[str, bytes]
HOSTILE: tuple[Any, ...] = (
    *(None, True, False, 0, -1, 1, 1.5, -0.0, 2**53, -(2**53), 1e308, 5e-324, 10**18),
    *("", "nan", "inf", "-inf", "9" * 5000, "-1", "0", "1e400", "x" * 100_000, "\u202eabc\u202c"),
    *("\x1b[2J", "a\nb", "\u2028", "../../x", "/dev/zero", "{{7*7}}", "<script>", "0" * 64),
    *([], {}, [[]] * 50, [0] * 10_000, {"": {}}, {"kind": "checked"}, "2030-01-01T00:00:00Z"),
)
TOML = (
    b".".join([b"a"] * 30_000) + b" = 1\n",
    b"a = " + b"[" * 30_000 + b"]" * 30_000 + b"\n",
    b"a = " + b"{b=" * 10_000 + b"1" + b"}" * 10_000 + b"\n",
    b"\n".join(b"[a%d.b.c]" % number for number in range(5000)) + b"\n",
    b"[[criterion]]\n" * 4000,
    b"a = " + b"9" * 60_000 + b"\n",
    b"a = 1e99999999\n",
    b'a = """' + b"\\\n" * 30_000 + b'"""\n',
    b"a = 1979-05-27T07:32:00.999999999999999999999999Z\n",
    b"\xff\xfe\x00",
    b'schema = "bench/criteria/1"\nname = "\\u202e"\nversion = 1\nsummary = ""\n',
)
PDF_WORDS = (
    *(
        b"null",
        b"true",
        b"-1",
        b"0",
        b"2000000000",
        b"[0 0 0]",
        b"<<>>",
        b"(\\)",
        b"<zz>",
        b"1 0 R",
    ),
    *(
        b"/W [0 0 0]",
        b"/Length 99999999",
        b"/Size 2000000000",
        b"/FlateDecode",
        b"/Crypt",
        b"/Kids",
    ),
    *(
        b"[" * 5000,
        b"<<" * 5000,
        b"/Prev 0",
        b"/XRefStm 0",
        b"obj",
        b"endobj",
        b"stream",
        b"99999 0 R",
    ),
)
HTML_WORDS = (
    *(
        b"<script>",
        b"<svg onload=1>",
        b"<!--",
        b"]]>",
        b"<a " * 3000,
        b'<a id="bench-proof"',
        b"&" * 9,
    ),
    *(b'class="bench-data"', b"base64,", b"====", b'download="../../x"', b"\x00", b"<div>" * 5000),
)


@dataclass(frozen=True, kw_only=True)
class Genuine:
    """The files of a genuine bundle, and what a forger signs with."""

    files: Mapping[str, bytes]
    key: Key = field(default_factory=keys.development_key)

    @property
    def json_files(self) -> list[str]:
        return sorted(name for name in self.files if name.endswith(".json"))


@dataclass(frozen=True, kw_only=True)
class Input:
    """What verify is given: a folder's files, or the one of them that is named `alone`."""

    kind: str
    files: Mapping[str, bytes]
    alone: str = ""
    is_signed: bool = False


# ------------------------------------------------------------------ bytes


def spoiled(rng: random.Random, data: bytes) -> bytes:
    """The bytes with one to four changes of any sort."""
    for _ in range(rng.randint(1, 4)):
        place = rng.randrange(len(data) + 1)
        length = rng.choice((1, 1, 2, 8, 64, 4096))
        piece = data[place : place + length]
        change = rng.randrange(6)
        if change == 0:
            piece = bytes(one ^ (1 << rng.randrange(8)) for one in piece)
        elif change == 1:
            piece = b""
        elif change == 2:
            piece = piece * rng.choice((2, 2, 50))
        elif change == 3:
            piece = rng.randbytes(length) + piece
        elif change == 4:
            piece = piece[::-1]
        else:
            other = rng.randrange(len(data) + 1)
            piece = data[other : other + length]
        data = data[:place] + piece + data[place + length :]
    return data


def of_bytes(rng: random.Random, genuine: Genuine) -> Input:
    name = rng.choice(sorted(genuine.files))
    files = {**genuine.files, name: spoiled(rng, genuine.files[name])}
    is_page = name in bundle.RENDERINGS and rng.random() < 0.5
    kind = "html" if is_page and name == bundle.HTML else "bytes"
    return Input(kind=kind, files=files, alone=name if is_page else "")


# ------------------------------------------------------------------ values


def places(value: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    """Every place in a JSON value."""
    items = (
        value.items()
        if isinstance(value, dict)
        else enumerate(value)
        if isinstance(value, list)
        else ()
    )
    return [path, *(place for key, inner in items for place in places(inner, (*path, key)))]


def with_value(rng: random.Random, value: Any) -> Any:
    """The value with something hostile in one of its places, or a place less, or one more."""
    path = rng.choice(places(value))
    if not path:
        return rng.choice(HOSTILE)
    holder = value
    for key in path[:-1]:
        holder = holder[key]
    change = rng.random()
    if change < 0.1:
        del holder[path[-1]]
    elif change < 0.2 and isinstance(holder, dict):
        holder[rng.choice(("x", "", "\u202e", "schema", "kind"))] = rng.choice(HOSTILE)
    elif change < 0.3 and isinstance(holder, list):
        holder += [holder[path[-1]]] * rng.choice((1, 500))
    else:
        holder[path[-1]] = hostile(rng, holder[path[-1]])
    return value


def hostile(rng: random.Random, value: Any) -> Any:
    """Something hostile, mostly of the same type, so that it passes the reader."""
    if rng.random() < 0.3 or isinstance(value, dict | list):
        return rng.choice(HOSTILE)
    if isinstance(value, bool):
        return not value
    if isinstance(value, int | float):
        return rng.choice((0, -1, 1, 2, 1e9, 1e308, 5e-324, 2**53 - 1, "nan", "inf", value * 3))
    if isinstance(value, str) and value.isdigit():
        return rng.choice(("0", "1", "-1", str(int(value) * 1000), "9" * 18, str(int(value) + 1)))
    return rng.choice([one for one in HOSTILE if isinstance(one, str)])


def of_values(rng: random.Random, genuine: Genuine) -> Input:
    names = [name for name in genuine.json_files if not name.endswith(".dsse.json")]
    name = rng.choice(names)
    data = canonical(with_value(rng, json.loads(genuine.files[name])))
    return signed(rng, genuine, "values", {name: data}, with_plan=name != bundle.PLAN)


def canonical(value: Any) -> bytes:
    try:
        return rfc8785.dumps(value)
    except rfc8785.CanonicalizationError:
        return json.dumps(value).encode()


def of_toml(rng: random.Random, genuine: Genuine) -> Input:
    name = rng.choice((bundle.CRITERIA, bundle.ORDER))
    data = genuine.files[bundle.CRITERIA]
    lines = data.splitlines(keepends=True)
    place = rng.randrange(len(lines))
    if rng.random() < 0.5:
        value = json.dumps(rng.choice([one for one in HOSTILE if one is not None])).encode()
        lines[place] = lines[place].partition(b"=")[0] + b"= " + value + b"\n"
    else:
        lines[place] = rng.choice(TOML)
    return signed(rng, genuine, "toml", {name: b"".join(lines)})


def of_journal(rng: random.Random, genuine: Genuine) -> Input:
    lines = [json.loads(line) for line in genuine.files[bundle.JOURNAL].splitlines()]
    for _ in range(rng.randint(1, 3)):
        place, change = rng.randrange(len(lines)), rng.random()
        if change < 0.6:
            line = with_value(rng, lines[place])
            lines[place] = line if isinstance(line, dict) else {"event": line}
        elif change < 0.7:
            del lines[place]
        elif change < 0.8:
            lines[place:place] = [lines[place]] * rng.choice((1, 2000))
        else:
            other = rng.randrange(len(lines))
            lines[place], lines[other] = lines[other], lines[place]
    written, last = [], sha256(genuine.files[bundle.PLAN])
    for number, line in enumerate(lines):
        text = canonical({**line, "seq": number, "prev": last})
        written.append(text + b"\n")
        last = sha256(text)
    return signed(rng, genuine, "journal", {bundle.JOURNAL: b"".join(written)}, with_plan=False)


def signed(
    rng: random.Random,
    genuine: Genuine,
    kind: str,
    changed: Mapping[str, bytes],
    *,
    with_plan: bool = True,
) -> Input:
    """The files with these among them, signed anew but for one in four; pages are left as they are.

    `with_plan`: the plan names the changed files, and the journal follows it.
    """
    files = {**genuine.files, **changed}
    if rng.random() < 0.25:
        return Input(kind=kind, files=files)
    if with_plan:
        files |= {name: data for name, data in planned(files).items() if name not in changed}
    files |= statements(genuine, files)
    return Input(kind=kind, files=files, is_signed=True)


def planned(files: Mapping[str, bytes]) -> Files:
    """Plan and journal that name these files."""
    data = {name: files[name] for name in bundle.data_names(files)}
    lines = [json.loads(line) for line in files[bundle.JOURNAL].splitlines()]
    forgery = Forgery(files=data, lines=lines)
    try:
        forgery.mend()
    except (ValueError, KeyError, TypeError):  # a system without an identity has no digest of one
        return {}
    return {name: forgery.files[name] for name in (bundle.PLAN, bundle.JOURNAL)}


def statements(genuine: Genuine, files: Mapping[str, bytes]) -> Files:
    """Both statements over these files, by the forger; they say of the run what they said."""
    key, made = genuine.key, {}
    made[bundle.SIGNER] = files[bundle.SIGNER]
    if files[bundle.SIGNER] == genuine.files[bundle.SIGNER]:
        made[bundle.SIGNER] = to_json(keys.signer_record(key, "tester"))
    whole = {**files, **made}
    old = json.loads(base64.b64decode(json.loads(files[bundle.STATEMENT])["payload"]))
    predicate = {**old["predicate"], "plan": sha256(whole[bundle.PLAN])}
    subjects = {name: sha256(whole[name]) for name in bundle.data_names(whole)}
    one = dsse.Statement(predicate_type=dsse.ACCEPTANCE, subjects=subjects, predicate=predicate)
    made[bundle.STATEMENT] = whole[bundle.STATEMENT] = dsse.sign_statement(one, key)
    pages = {name: sha256(whole[name]) for name in (bundle.STATEMENT, *bundle.RENDERINGS)}
    two = dsse.Statement(predicate_type=dsse.REPORT, subjects=pages, predicate=predicate)
    return {**made, bundle.REPORT: dsse.sign_statement(two, key)}


# ------------------------------------------------------------------ pages and certificates


def of_pdf(rng: random.Random, genuine: Genuine) -> Input:
    data = genuine.files[bundle.PDF]
    change = rng.random()
    if change < 0.2:
        data = small_pdf(rng)
    else:
        for _ in range(rng.randint(1, 3)):
            words = list(re.finditer(rb"(?<=[\s/\[<(])[A-Za-z0-9./]+(?=[\s/\]>)])", data[-60_000:]))
            begin, end = rng.choice(words).span()
            shift = max(0, len(data) - 60_000)
            data = data[: shift + begin] + rng.choice(PDF_WORDS) + data[shift + end :]
    return Input(kind="pdf", files={**genuine.files, bundle.PDF: data}, alone=bundle.PDF)


def small_pdf(rng: random.Random) -> bytes:
    """A PDF of a few bytes: hostile cross-references, loops, bombs."""
    size = rng.choice((2, 1000, 2_000_000_000, -1))
    widths = rng.choice(
        (b"[0 0 0]", b"[1 1 1]", b"[9 9 9]", b"[-1 0 0]", b"[1]", b"[999999999 1 1]")
    )
    content = rng.choice((b"", b"\0" * 64, zlib.compress(b"\0" * rng.choice((9, 20_000_000)))))
    packed = b"/Filter /FlateDecode " if content.startswith(b"\x78") else b""
    root = rng.choice((b"1 0 R", b"2 0 R", b"<< /Names 1 0 R >>", b"null", b"9 9 R"))
    prev = rng.choice((b"", b"/Prev 9 ", b"/Prev 0 ", b"/Prev 99999999999 "))
    head = b"%PDF-1.7\n"
    fields = b"/Size %d /W %b /Root %b %b%b" % (size, widths, root, prev, packed)
    stream = b"1 0 obj\n<< /Type /XRef %b/Length %d >>\nstream\n" % (fields, len(content))
    stream += content + b"\nendstream\n"
    return head + stream + b"endobj\nstartxref\n%d\n%%%%EOF\n" % len(head)


def of_html(rng: random.Random, genuine: Genuine) -> Input:
    data = genuine.files[bundle.HTML]
    for _ in range(rng.randint(1, 3)):
        marks = [one.start() for one in re.finditer(rb"[<>\"=]", data)]
        place = rng.choice(marks)
        length = rng.choice((0, 1, 30))
        data = data[:place] + rng.choice(HTML_WORDS) + data[place + length :]
    return Input(kind="html", files={**genuine.files, bundle.HTML: data}, alone=bundle.HTML)


def of_certificate(rng: random.Random, genuine: Genuine) -> Input:
    certificate = genuine.key.certificate.public_bytes(Encoding.DER)
    der = spoiled(rng, certificate)
    text = base64.encodebytes(der).decode()
    pem = f"-----BEGIN CERTIFICATE-----\n{text}-----END CERTIFICATE-----\n"
    fields = json.loads(genuine.files[bundle.SIGNER])
    fields["certificate_pem"] = pem
    try:
        key = Key(genuine.key.private, x509.load_der_x509_certificate(der))
        fields = json.loads(to_json(keys.signer_record(key, "tester")))
    except Exception:  # noqa: BLE001 - what cannot be read is a hostile input as well
        fields["sha256"] = sha256(der)
    return signed(rng, genuine, "certificate", {bundle.SIGNER: canonical(fields)})


Kind = Callable[[random.Random, Genuine], Input]
KINDS: tuple[Kind, ...] = (
    of_bytes,
    of_values,
    of_toml,
    of_journal,
    of_pdf,
    of_html,
    of_certificate,
)


def drawn(seed: int, number: int, genuine: Genuine) -> Input:
    """The input of this number under this seed; the kinds take turns."""
    rng = random.Random(f"{seed}/{number}")  # noqa: S311 - no secret
    given = KINDS[number % len(KINDS)](rng, genuine)
    if given.files != genuine.files:
        return given
    name = given.alone or bundle.PLAN  # the change left everything as it was
    return replace(given, files={**given.files, name: given.files[name] + b"\n"})
