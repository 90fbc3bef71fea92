"""The lens: its numbers are those of Python, and a person can use it, in a real Chromium without network."""

from __future__ import annotations

import base64
import hashlib
import re
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from browser import needs_chromium, opened_browser

import linnet
from linnet.analysis.lens.bundle import bundle
from linnet.analysis.lens.describe import CannotShow, text_of, variances_of
from linnet.analysis.lens.page import lens
from linnet.analysis.lens.runs import lens_of, lens_of_runs
from linnet.analysis.pace import moves
from linnet.analysis.reach import reach
from linnet.analysis.similar import similarities
from linnet.analysis.sums import arrows, sum_weights
from linnet.cli import main
from linnet.data.conll import VERSE_WORD, stripped
from linnet.data.labelled import BLANKS, CLEANING, clean_words
from linnet.data.vocabulary import Vocabulary, bpe_vocabulary, word_vocabulary
from linnet.deploy.source.int8 import quantised
from linnet.deploy.step.program import Matrix
from linnet.models.classifier import Classifier, ClassifierConfig
from linnet.models.language import LanguageModel, LanguageModelConfig
from linnet.models.tagger import Tagger, TaggerConfig

TEXT = "the small bird sat on the mat , and then it ran away"
WORDS = [*dict.fromkeys(TEXT.split()), "a", "cat", "what", "voice", ".", "<unk>", "<eos>"]


def language_model(unit: str, **options: Any) -> LanguageModel:
    torch.manual_seed(0)
    sizes = {"embedding_size": 6, "hidden_size": 8, "num_layers": 2}
    model = LanguageModel(len(WORDS), LanguageModelConfig(unit=unit, unit_options=options, **sizes))
    # The memory of NRU grows with its weights, and rounding with it.
    for parameter in () if unit == "nru" else model.parameters():
        torch.nn.init.normal_(parameter, std=0.7)
    return model


def page_of(model: Any, name: str, **options: Any) -> Any:
    counts = list(range(len(WORDS), 0, -1))
    return lens(model, WORDS, text=TEXT, name=name, counts=counts, **options)


def test_only_sru_has_variances_of_new_weights():
    """Its alpha is a correction; that of FastRNN is a parameter, and that of SCRN a rate."""
    labels = {
        unit: {curve["label"].split(":")[0] for curve in variances_of(language_model(unit), len(WORDS))}
        for unit in ("sru", "fastrnn", "scrn")
    }
    assert labels["sru"] == {"trained", "new, with alpha", "new, without"}
    assert labels["fastrnn"] == labels["scrn"] == {"trained"}


# --------------------------------------------------------------------------------------- in a browser


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    with opened_browser() as opened:
        yield opened


@pytest.fixture
def open_page(browser: Any, tmp_path: Path) -> Iterator[Any]:
    """Open a lens without network; in the end, nothing was requested and nothing was logged."""
    contexts, logged = [], []

    def open_lens(shown: Any, width: int = 1200, dark: bool = False, touch: bool = False) -> Any:
        screen = {"viewport": {"width": width, "height": 900}, "color_scheme": "dark" if dark else "light"}
        screen |= {"has_touch": touch, "is_mobile": touch}
        contexts.append(browser.new_context(offline=True, accept_downloads=True, **screen))
        page = contexts[-1].new_page()
        page.on("console", lambda message: logged.append(message.text))
        page.on("pageerror", lambda error: logged.append(str(error)))
        page.goto(shown.save(tmp_path / "lens.html").as_uri())
        return page

    yield open_lens
    for context in contexts:
        requests = "performance.getEntriesByType('resource').map(each => each.name)"
        names = context.pages[0].evaluate(requests)
        assert [name for name in names if not name.startswith(("data:", "blob:"))] == []
        context.close()
    assert logged == []


def wait_until(page: Any, condition: str) -> None:
    """Playwright's own function evaluates a string in the page, which the page's policy refuses."""
    for _ in range(300):
        if page.evaluate(condition):
            return
        page.wait_for_timeout(50)
    raise AssertionError(f"never: {condition}")


def tokens_of(text: str) -> torch.Tensor:
    return torch.tensor([WORDS.index(word) for word in text.split()])


def close(found: Any, expected: torch.Tensor) -> None:
    torch.testing.assert_close(torch.tensor(found), expected.double().detach().float(), rtol=1e-5, atol=1e-5)


LENSES = [("ran", False), ("scrn", False), ("nru", False), ("goru", False), ("sru", True)]


@needs_chromium
@pytest.mark.parametrize(("unit", "int8"), LENSES)
def test_the_numbers_in_the_page_are_those_of_python(open_page: Any, unit: str, int8: bool):
    model = language_model(unit)
    page = open_page(page_of(model, unit, int8=int8))
    if int8:
        round_weights(model)
    tokens = tokens_of(TEXT)
    recording = linnet.record(model, tokens[:, None])
    values = page.evaluate(
        "lens.readings[0].steps.map(step => step.values.map(layer => "
        "Object.fromEntries(Object.entries(layer).map(([name, each]) => [name, [...each]]))))"
    )
    for number, layer in enumerate(recording):
        for name, expected in layer.items():
            close([step[number][name] for step in values], expected[:, 0].flatten(1))
    found = page.evaluate("lens.analyses.moves(lens.readings[0], 1)")
    for name, expected in moves(recording[1]).items():
        if name in found:
            close(found[name], expected[:, 0])
    close(page.evaluate(f"lens.analyses.reachOf(lens.readings[0], {len(tokens) - 1})"), reach(model, tokens))
    expected = model.log_probs(tokens[:, None])[0][-1, 0].exp()
    close(page.evaluate("[...lens.readings[0].probabilities(lens.readings[0].length - 1)]"), expected)
    if unit in ("ran", "sru"):
        same_sums(page, recording[0])
    same_similarities(page, recording[1])


def same_similarities(page: Any, values: Any) -> None:
    """Of the states after words 3 and 4 with those after all words."""
    name = next(iter(values.before))
    found = page.evaluate(
        "name => { const states = lens.readings[0].steps.map(step => step.values[1][name]);"
        "return lens.analyses.similarities(states.slice(3, 5), states).slice(1); }",
        name,
    )
    states = values[name][:, 0].flatten(1)
    expected = similarities(states[3:5], states)
    assert expected[:1].isnan().all()
    assert expected[4] > 0.999
    close(found, expected[1:])


def same_sums(page: Any, values: Any) -> None:
    weights = sum_weights(values).weights[:, :, 0]
    table = page.evaluate("lens.analyses.weightTable(lens.readings[0], 0)")
    for t, row in enumerate(table):
        close([each["largest"] for each in row], weights[t, : t + 1].amax(-1))
        close([each["mean"] for each in row], weights[t, : t + 1].mean(-1))
    pointed = page.evaluate("lens.analyses.arrows(lens.analyses.weightTable(lens.readings[0], 0))")
    assert pointed == arrows(weights[:, :, None])[:, 0].tolist()


@torch.no_grad()
def round_weights(model: torch.nn.Module) -> None:
    """As int8 stores them: matrices row by row."""
    for parameter in model.parameters():
        if parameter.dim() == 2:
            rounded = quantised(Matrix(parameter.numpy()))
            parameter.copy_(torch.from_numpy(rounded.values * rounded.scales[:, None]))


@needs_chromium
def test_a_person_types_points_and_chooses_views(open_page: Any):
    page = open_page(page_of(language_model("ran"), "RAN"))
    assert page.locator(".words span").all_inner_texts() == TEXT.split()
    for tab in page.locator("[role=tab]").all():
        tab.click()
        wait_until(page, "!document.querySelector('.says').textContent.startsWith('Computing')")
        assert page.locator(".panel .figure svg[role=img]").get_attribute("aria-label")
        assert len(page.locator(".about").inner_text()) > 60
        assert page.locator(".says").inner_text()
    page.click("#tab-weights")
    column = page.locator(".panel .hits rect").nth(3).bounding_box()
    page.mouse.move(column["x"] + 5, column["y"] + 20)
    wait_until(page, "lens.selected === 3")
    assert "“sat”" in page.locator(".says").inner_text()
    page.fill("textarea", "the cat sat on the sofa")
    wait_until(page, "lens.readings[0].length === 6")
    assert page.locator(".notice").inner_text() == "Not in the vocabulary: sofa."
    page.click("#tab-next")
    best = page.locator("[data-write]").first
    word = best.get_attribute("aria-label").removeprefix("write ")
    best.click()
    expected = "the cat sat on the sofa" + ("\n" if word == "<eos>" else f" {word}")
    assert page.input_value("textarea") == expected
    page.fill("textarea", "")
    wait_until(page, "lens.readings[0].length === 0")
    assert "Type something" in page.locator(".panel").inner_text()


@needs_chromium
def test_a_finger_chooses_words_views_and_what_to_write(open_page: Any):
    page = open_page(page_of(language_model("lrn"), "LRN"), width=390, touch=True)
    page.tap(".words span:nth-child(3)")
    wait_until(page, "lens.selected === 2")
    page.tap("#tab-weights")
    assert "“bird”" in page.locator(".says").inner_text()
    column = page.locator(".panel .hits rect").nth(1).bounding_box()
    page.touchscreen.tap(column["x"] + 5, column["y"] + 20)
    wait_until(page, "lens.selected === 1")
    page.tap("#tab-next")
    page.tap("[data-write] >> nth=0")
    wait_until(page, f"lens.readings[0].length >= {len(TEXT.split())}")
    assert len(page.input_value("textarea")) > len(TEXT)
    # As WCAG 2.2 asks (2.5.8): nothing to tap is smaller than 24 pixels.
    small = "[...document.querySelectorAll('.words span, button, select, input, [data-write]')]"
    sizes = page.evaluate(f"{small}.map(each => each.getBoundingClientRect().height)")
    assert min(sizes) >= 24


@needs_chromium
def test_similar_states_are_found_in_other_texts(open_page: Any):
    passages = ["a cat sat on the mat . what a voice", "the small bird sat on the mat ."]
    shown = page_of(language_model("ran"), "RAN", passages=passages)
    page = open_page(shown)
    page.click("#tab-similar")
    page.evaluate("lens.select(4)")
    wait_until(page, "document.querySelector('.says').textContent.startsWith('The states after “on”')")
    # The second text begins as the typed one does, so the model is in the very same state.
    assert page.locator(".says").inner_text() == "The states after “on” are most like those after “on”: 1."
    page.fill("input[aria-label=words]", "3")
    page.keyboard.press("Enter")
    wait_until(page, "document.querySelector('.says').textContent.includes('bird')")
    said = page.locator(".says").inner_text().replace("\u00a0", " ")
    assert said == "The states after “bird sat on” are most like those after “bird sat on”: 1."
    page.click("summary")
    page.wait_for_selector("tbody tr td")  # the table is filled when it is opened
    first = [
        cell.replace("\u00a0", " ") for cell in page.locator("tbody tr").first.locator("td").all_inner_texts()
    ]
    assert first == ["1", "the small", "bird sat on", "the mat ."]


@needs_chromium
def test_without_other_texts_similar_states_are_those_of_the_typed_one(open_page: Any):
    page = open_page(page_of(language_model("rnn"), "RNN"))
    page.click("#tab-similar")
    page.fill("textarea", "the cat sat the cat")
    wait_until(page, "lens.readings[0].length === 5")
    assert "after “cat” are most like those after “cat”" in page.locator(".says").inner_text()
    page.fill("textarea", "the")
    wait_until(page, "lens.readings[0].length === 1")
    assert page.locator(".says").inner_text() == "There is no other place to compare with."


@needs_chromium
def test_the_keyboard_reaches_everything(open_page: Any):
    page = open_page(page_of(language_model("lstm"), "LSTM"))
    page.click("#tab-channels")
    page.evaluate("document.activeElement.blur()")
    focusable = "button:not([tabindex='-1']), select, input, textarea, summary, [tabindex='0']"
    visible = "each => each.checkVisibility()"
    wanted = page.evaluate(f'[...document.querySelectorAll("{focusable}")].filter({visible}).length')
    name = "(document.activeElement === document.body ? '' : document.activeElement.outerHTML.slice(0, 120))"
    reached = set()
    # The browser starts where the focus was, and leaves the page once at its end.
    for _ in range(wanted + 1):
        page.keyboard.press("Tab")
        reached.add(page.evaluate(name))
    assert len(reached - {""}) == wanted
    page.focus("[role=tab][aria-selected=true]")
    page.keyboard.press("ArrowRight")
    assert page.evaluate("lens.view.id + document.activeElement.id") == "gatestab-gates"
    page.focus(".words [tabindex='0']")
    page.keyboard.press("Home")
    page.keyboard.press("ArrowRight")
    wait_until(page, "lens.selected === 1 && document.activeElement.textContent === 'small'")


CONTRAST = """() => {
  const parse = (text) => text.match(/[\\d.]+/g).map(Number);
  const light = (rgb) => rgb.slice(0, 3).map(part => part / 255)
    .map(part => part <= 0.03928 ? part / 12.92 : ((part + 0.055) / 1.055) ** 2.4)
    .reduce((sum, part, i) => sum + part * [0.2126, 0.7152, 0.0722][i], 0);
  const behind = (each) => {
    for (; each; each = each.parentElement) {
      const colour = parse(getComputedStyle(each).backgroundColor);
      if (colour.length === 3 || colour[3] > 0) return colour;
    }
    return [255, 255, 255];
  };
  const found = [];
  for (const each of document.querySelectorAll(".lens *")) {
    const own = [...each.childNodes].some(node => node.nodeType === 3 && node.textContent.trim());
    if (!own || !each.getClientRects().length) continue;
    const style = getComputedStyle(each), svg = each instanceof SVGElement;
    const a = light(parse(svg ? style.fill : style.color));
    const b = light(behind(svg ? each.closest("svg").parentElement : each));
    found.push([each.textContent.slice(0, 30), (Math.max(a, b) + 0.05) / (Math.min(a, b) + 0.05)]);
  }
  return found;
}"""


@needs_chromium
@pytest.mark.parametrize("dark", [False, True])
def test_two_models_on_a_phone_with_enough_contrast(open_page: Any, dark: bool):
    both = page_of(language_model("ran"), "RAN").beside(page_of(language_model("nru"), "NRU"))
    page = open_page(both, width=360, dark=dark)
    background = page.evaluate("getComputedStyle(document.body).backgroundColor")
    assert background == ("rgb(23, 23, 26)" if dark else "rgb(255, 255, 255)")
    for tab in page.locator("[role=tab]").all():
        tab.click()
        assert page.evaluate("document.documentElement.scrollWidth") <= 360
        low = [pair for pair in page.evaluate(CONTRAST) if pair[1] < 4.5]
        assert low == []
    page.click("#tab-weights")
    first, second = page.locator(".panel").all()
    assert first.bounding_box()["y"] < second.bounding_box()["y"]
    assert "no state of NRU is a sum" in second.inner_text()
    page.click(".theme")
    page.click(".theme")
    assert page.evaluate("getComputedStyle(document.body).backgroundColor") == "rgb(23, 23, 26)"
    page.set_viewport_size({"width": 1200, "height": 900})
    wait_until(page, "document.querySelectorAll('.panel')[1].getBoundingClientRect().x > 500")


@needs_chromium
def test_any_figure_is_saved_as_svg_and_png(open_page: Any, tmp_path: Path):
    page = open_page(page_of(language_model("ran"), "RAN"))
    page.click("#tab-memory")
    for kind, start in (("SVG", b"<svg"), ("PNG", b"\x89PNG")):
        with page.expect_download() as download:
            page.click(f"text=Save {kind}")
        assert download.value.suggested_filename == f"memory-RAN.{kind.lower()}"
        content = Path(download.value.path()).read_bytes()
        assert content.startswith(start)
        assert b"var(--" not in content


@needs_chromium
def test_texts_are_split_as_python_splits_them(open_page: Any):
    text = "The bird's song: well-known, isn't it?\nÉlan vital — 12 o’clock  <unk> now"  # noqa: RUF001
    train = f"{text}\n" * 3
    page = open_page(page_of(language_model("rnn"), "RNN"))
    for vocabulary in (
        word_vocabulary(train, words="punctuation"),
        word_vocabulary(train, words="blanks", lowercase=True, size=9),
        Vocabulary("char", tuple(sorted(set(text)))),
        Vocabulary("byte", tuple(map(chr, range(256)))),
        bpe_vocabulary(train, size=300),
    ):
        found = [token["id"] for token in split_in_page(page, text, text_of(vocabulary))]
        assert found == vocabulary.encode(text).tolist(), vocabulary.level
    every = Vocabulary("word", ("<unk>",), lowercase=True)
    for spec, words in (
        (text_of(every, BLANKS, CLEANING), clean_words(text)),
        (text_of(every, VERSE_WORD), stripped(text).words),
    ):
        assert [token["text"] for token in split_in_page(page, text, spec)] == list(words)


def split_in_page(page: Any, text: str, spec: Any) -> list[dict[str, Any]]:
    return page.evaluate(
        """([text, spec]) => lens.analyses.tokenise(text,
            {...spec, index: new Map(spec.tokens.map((token, id) => [token, id])),
             ranks: new Map(spec.merges.map((merge, rank) => [merge, rank]))})""",
        [text, spec],
    )


# -------------------------------------------------------------------------------------- trained runs


def trained(folder: Path, command: str, contents: str) -> Path:
    """A run of one epoch on these data."""
    for name in ("data", "data.csv"):
        (folder / name).write_text(contents, encoding="utf-8")
    arguments = ["train", *command.split(), "--epochs", "1", "--threads", "1"]
    assert main([*arguments, "--hidden-size", "8", "--run-dir", str(folder / "run")]) == 0
    return folder / "run"


@needs_chromium
def test_the_lens_of_a_trained_tagger_has_the_probabilities_of_its_crf(open_page: Any, tmp_path: Path):
    sentences = "Anna B-PER\nSmith I-PER\nsang O\n\nRome B-LOC\n's O\nbirds O\nslept O\n\n" * 20
    options = "--no-bidirectional --character-size 0 --unit lrn --lr 0.05"
    folder = trained(tmp_path, f"tag --path {tmp_path}/data {options}", sentences)
    page = open_page(lens_of_runs([folder]))
    assert page.input_value("textarea") in ("Anna Smith sang", "Rome 's birds slept")
    page.fill("textarea", "Anna's birds sang in Rome")
    wait_until(page, "lens.readings[0].length === 6")
    run = linnet.load(folder)
    words = run.task.words("Anna's birds sang in Rome")
    assert page.locator(".words span").all_inner_texts() == [word.lower() for word in words]
    tokens = torch.tensor(run.vocabulary.encode(words))[:, None]
    with torch.no_grad():
        scores = run.model(tokens)
        for t in range(len(words)):
            expected = run.model.decoder.marginals(scores[: t + 1], lengths=[t + 1])[-1, 0]
            close(page.evaluate(f"[...lens.readings[0].probabilities({t})]"), expected)
    assert "the tag of this word is most probably" in page.locator(".says").inner_text()
    page.click("#tab-pace")
    assert "Rank correlation with rarity" in page.locator(".says").inner_text()
    both = Tagger(9, 4, TaggerConfig(unit="lrn", character_size=0))
    with pytest.raises(CannotShow, match=r"reads in both directions.*--no-bidirectional --character-size 0"):
        lens_of(replace(run, model=both))


@needs_chromium
def test_the_lens_of_a_trained_classifier_has_its_predictions(open_page: Any, tmp_path: Path):
    rows = (
        "text,label\n"
        + "What a voice!,good\nwhat a noise,bad\nthe bird sang,good\nit was (too) loud,bad\n" * 20
    )
    options = "--words clean --lr 0.05 --pooling max --no-bidirectional --counts none"
    folder = trained(tmp_path, f"classify --path {tmp_path}/data.csv {options}", rows)
    page = open_page(lens_of_runs([folder]))
    text = "What a (loud) bird, it wasn't!"
    page.fill("textarea", text)
    wait_until(page, "lens.readings[0].length > 8")
    (answer,) = linnet.load(folder).predict([text])
    found = page.evaluate("[...lens.readings[0].probabilities(lens.readings[0].length - 1)]")
    close(found, torch.tensor([answer["probabilities"][label] for label in ("bad", "good")]))
    assert f"the class is most probably “{answer['label']}”" in page.locator(".says").inner_text()
    page.click("#tab-similar")
    wait_until(page, "document.querySelector('.says').textContent.startsWith('The states')")


# ------------------------------------------------------------------------------------ without a browser


def test_the_page_is_one_file_without_addresses():
    page = page_of(language_model("lrn"), "LRN").html
    assert page.count("<script") == 1
    assert re.findall(r'(?:src|href)="(?!data:)[^"]*"', page) == []
    assert set(re.findall(r"https?://[^\s\"']+", page)) <= {"http://www.w3.org/2000/svg"}
    assert "/*" + "SCRIPT*/" not in page


def test_the_page_runs_its_own_script_and_reaches_no_address():
    """By its Content-Security-Policy, whose hashes are those of its script and its style."""
    page = page_of(language_model("lrn"), "/*SCRIPT*/").html
    (policy,) = re.findall(r'<meta http-equiv="Content-Security-Policy" content="([^"]*)">', page)
    rules = dict(rule.split(" ", 1) for rule in policy.split("; "))
    for kind, element in (("script-src", "script"), ("style-src", "style")):
        (text,) = re.findall(rf"<{element}[^>]*>(.*)</{element}>", page, re.DOTALL)
        digest = base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()
        assert rules.pop(kind) == f"'sha256-{digest}'"
    assert rules.pop("img-src") == "data:"
    assert rules == dict.fromkeys(("default-src", "base-uri", "form-action"), "'none'")
    assert "<title>Lens: /*SCRIPT*/</title>" in page


@needs_chromium
def test_the_browser_refuses_other_scripts_and_requests(browser: Any, tmp_path: Path):
    page, logged = browser.new_page(), []
    page.on("console", lambda message: logged.append(message.text))
    page.goto(page_of(language_model("lrn"), "LRN").save(tmp_path / "lens.html").as_uri())
    assert page.evaluate("lens.models.length") == 1
    page.evaluate(
        "document.body.append(Object.assign(document.createElement('script'), { text: 'ran = 1' }))"
    )
    page.evaluate("fetch('data:text/plain,x').catch(() => null)")
    assert page.evaluate("typeof ran") == "undefined"
    assert any("Executing inline script violates" in text for text in logged)
    assert any("Refused to connect" in text for text in logged)
    page.close()


def test_modules_are_joined_in_the_order_in_which_they_need_each_other():
    script = bundle("page")
    order = re.findall(r"^const \$(\w+) = \(\(\) => \{$", script, re.MULTILINE)
    assert order.index("figure") < order.index("weights") < order.index("page")
    assert not re.search(r"^(import|export) ", script, re.MULTILINE)


def test_a_name_that_ends_a_script_stays_a_name():
    page = page_of(language_model("lrn"), "</script><script>alert(1)</script>").html
    assert page.count("<script") == 1 + page.count("<\\/script><script>alert")
    assert "<title>Lens: &lt;/script&gt;" in page


def test_a_classifier_has_its_classes_and_bad_models_say_why():
    config = ClassifierConfig(unit="sru", embedding_size=4, hidden_size=4)
    shown = lens(Classifier(len(WORDS), 2, config), WORDS, labels=["dull", "great"])
    info = shown.models[0].info
    assert (info["says"], info["labels"]) == ("class", ["dull", "great"])
    with pytest.raises(ValueError, match="reads in both directions"):
        lens(Classifier(len(WORDS), 2, ClassifierConfig(unit="sru", bidirectional=True)), WORDS)
    bare = torch.nn.Sequential(torch.nn.Embedding(3, 4), linnet.SRU(4, 5))
    with pytest.raises(CannotShow, match="pass labels"):
        lens(bare, ["a", "b", "c"])
    assert lens(bare, ["a", "b", "c"], labels=list("12345")).models[0].info["unit"] == "SRU"


def test_the_command_writes_the_lens_of_runs(
    small_language_run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
):
    run = small_language_run
    assert main(["lens", str(run), str(run), "--text", "Hello", "--out", str(tmp_path / "both.html")]) == 0
    assert "both.html" in capsys.readouterr().out
    page = (tmp_path / "both.html").read_text(encoding="utf-8")
    assert '"Hello"' in page
    assert len(lens_of_runs([run, run]).models) == 2
    assert main(["lens", str(run), str(run), str(run)]) == 1
    assert "one run or two; got 3" in capsys.readouterr().err


class Notebook:
    """A page without a policy, in which widgets are shown."""

    def save(self, path: Path) -> Path:
        path.write_text("<!doctype html><title>Notebook</title><body></body>", encoding="utf-8")
        return path


@needs_chromium
def test_the_text_of_a_widget_is_that_of_its_page(open_page: Any):
    pytest.importorskip("anywidget", reason="anywidget is not installed")
    shown = page_of(language_model("rnn"), "RNN").widget(height=700)
    assert (shown.text, shown.height) == (TEXT, 700)
    page = open_page(Notebook())
    page.evaluate(
        """async ([code, values]) => {
          const { default: widget } = await import(`data:text/javascript,${encodeURIComponent(code)}`);
          const changed = [];
          const model = { get: name => values[name], set: (name, value) => (values[name] = value),
                          save_changes: () => 0, on: (_, call) => changed.push(call) };
          const el = document.body.appendChild(document.createElement("div"));
          widget.render({ model, el });
          window.widget = { values, changed, frame: el.querySelector("iframe") };
        }""",
        [shown._esm, {"page": shown.page, "text": shown.text, "height": shown.height}],
    )
    wait_until(page, "widget.changed.length === 1 && widget.frame.contentWindow.lens")
    page.frame_locator("iframe").locator("textarea").fill("the cat")
    assert page.evaluate("widget.values.text") == "the cat"
    page.evaluate("widget.values.text = 'a bird'; widget.changed[0]()")
    words = page.frame_locator("iframe").locator(".words span").all_inner_texts()
    assert words == ["a", "bird"]


def test_a_notebook_shows_the_page_in_a_frame():
    frame = page_of(language_model("lrn"), "LRN")._repr_html_()
    assert frame.startswith("<iframe")
    assert "&lt;!doctype html&gt;" in frame


# ----------------------------------------------------------------------------- nothing is cut off

LONG = " ".join(WORDS[1 + number % (len(WORDS) - 1)] for number in range(48))
CUT = """() => [...document.querySelectorAll(".figure")].flatMap(box => {
  const whole = box.getBoundingClientRect();
  const outside = [...box.querySelectorAll("svg text, svg rect")].filter(each => {
    const own = each.getBoundingClientRect();
    return own.left < whole.left - 1 || own.right > whole.right + 1 || own.bottom > whole.bottom + 1;
  });
  const beyond = box.scrollWidth > box.clientWidth ? ["scrolls"] : [];
  return [...beyond, ...outside.map(each => each.textContent || each.tagName)];
})"""


@needs_chromium
@pytest.mark.parametrize("width", [1280, 390])
def test_no_chart_is_cut_off(open_page: Any, width: int):
    page = open_page(page_of(language_model("sru"), "SRU"), width=width)
    for typed in (LONG, "small", " ".join([LONG] * 6)):
        page.fill("textarea", typed)
        for tab in page.locator("[role=tab]").all():
            tab.click()
            page.wait_for_timeout(60)
            assert page.evaluate(CUT) == []


@needs_chromium
def test_tabs_and_the_selected_word_are_seen_on_a_phone(open_page: Any):
    page = open_page(page_of(language_model("ran"), "RAN"), width=390, touch=True)
    page.fill("textarea", LONG)
    for tab in page.locator("[role=tab]").all():
        box = tab.bounding_box()
        assert box["x"] >= 0
        assert box["x"] + box["width"] <= 390
    wait_until(page, "document.querySelectorAll('.words span').length == 48")
    words, selected = (
        page.locator(each).bounding_box() for each in (".words", ".words [aria-selected=true]")
    )
    assert selected["y"] + selected["height"] <= words["y"] + words["height"]


@needs_chromium
def test_weights_are_shown_by_their_mean_or_by_the_largest(open_page: Any):
    page = open_page(page_of(language_model("ran"), "RAN"))
    page.click("#tab-weights")
    assert "its mean weight over all channels is" in page.inner_text(".says")
    page.select_option("select[aria-label=by]", "largest")
    assert "its largest weight over all channels is" in page.inner_text(".says")


# ---------------------------------------------------------------------------------- from Python


def test_a_loaded_run_has_its_lens(small_language_run: Path):
    run = linnet.load(small_language_run)
    shown = linnet.lens(run, text="the linnet")
    assert shown.text == "the linnet"
    assert shown.models[0].info["text"]["tokens"] == list(run.vocabulary.tokens)
    with pytest.raises(TypeError, match="a trained run has its own vocabulary"):
        linnet.lens(run, run.vocabulary)
    with pytest.raises(TypeError, match=r"needs its vocabulary: linnet.lens\(model, vocabulary\)"):
        linnet.lens(run.model)


def test_what_a_console_prints_is_short(small_language_run: Path):
    run = linnet.load(small_language_run)
    layer = run.model.stack[0].eval()
    for each in (run, linnet.lens(run), linnet.lens(run).models, run.vocabulary, linnet.stream(layer)):
        assert len(repr(each)) < 300
    assert repr(run.vocabulary).startswith(f"Vocabulary({len(run.vocabulary)} tokens by char: ' ', ")
    assert repr(run).startswith(f"TrainedRun({str(small_language_run)!r}: lm with ")
