"""The report's page: words and style. Everything is in the one file: no network, no script."""

from html import escape
from typing import Any

from mirrormark.envs.mirror_mark import EPISODE_CONTROL_STEPS
from mirrormark.envs.scene import TIMESTEP_S
from mirrormark.exam.before_after import MIN_KEPT_RUNS
from mirrormark.exam.protocol import CONTROL_STEP_S
from mirrormark.exam.verdict import CHANCE_RUNS

CSS = """
:root { color-scheme: light dark; --ground: #fbfaf7; --ink: #1b1b1a; --quiet: #5f5f5a; --line: #dcdad2;
  --card: #ffffff; --good: #1f7a5a; --bad: #a8323f; --open: #8a6d1d; }
@media (prefers-color-scheme: dark) { :root { --ground: #17181a; --ink: #e9e7e2; --quiet: #a3a19a;
  --line: #35363a; --card: #1e2023; --good: #58c49a; --bad: #ef8a94; --open: #d8b75a; } }
* { box-sizing: border-box; }
body { margin: 0 auto; padding: 1.5rem 1.1rem 4rem; max-width: 52rem; background: var(--ground);
  color: var(--ink); font: 16px/1.55 system-ui, -apple-system, "Segoe UI", Roboto, sans-serif; }
h1 { font-size: 1.5rem; line-height: 1.25; margin: 0 0 .3rem; }
h2 { font-size: 1.15rem; margin: 2.4rem 0 .6rem; padding-top: .8rem; border-top: 1px solid var(--line); }
p { margin: .5rem 0; } .quiet, figcaption, .small { color: var(--quiet); font-size: .87rem; }
.verdict { border-left: 6px solid var(--open); background: var(--card); padding: 1rem 1.1rem;
  margin: 1.2rem 0; border-radius: 0 8px 8px 0; }
.verdict.passed { border-color: var(--good); } .verdict.not-passed { border-color: var(--bad); }
.verdict .word { font-size: 1.7rem; font-weight: 650; margin: 0; }
.passed .word, .yes { color: var(--good); } .not-passed .word, .no { color: var(--bad); }
.label { display: inline-block; border: 1.5px solid var(--open); color: var(--open); padding: .1rem .6rem;
  border-radius: 99px; font-size: .9rem; }
figure { margin: 1.2rem 0; } figure svg, figure img, video { width: 100%; height: auto; display: block; }
video { margin: 0 auto; }
.scroll { overflow-x: auto; } .scroll svg { min-width: 34rem; }
table { border-collapse: collapse; width: 100%; font-size: .9rem; font-variant-numeric: tabular-nums; }
th { text-align: left; font-weight: 600; } th + th { text-align: right; }
th, td { padding: .3rem .6rem .3rem 0; vertical-align: top;
  border-bottom: 1px solid var(--line); } td.n { text-align: right; white-space: nowrap; }
td.words { text-align: right; }
ul { padding-left: 1.2rem; } dl { font-size: .87rem; } dt { font-weight: 600; }
dd { margin: 0 0 .3rem 1rem; } summary { cursor: pointer; margin-top: .8rem; }
code, pre { font: .85rem/1.5 ui-monospace, Menlo, Consolas, monospace; }
pre { background: var(--card); border: 1px solid var(--line); padding: .7rem; overflow-x: auto;
  border-radius: 6px; }
@media print { :root { --ground: #fff; --card: #fff; --ink: #000; --quiet: #444; --line: #bbb; }
  body { max-width: none; padding: 0; font-size: 11pt; } figure, table, .verdict { break-inside: avoid; }
  video { display: none; } h2 { break-after: avoid; } }
"""

_METHOD = """
<p>Each run is one episode of {steps} control steps ({seconds:g} s). A mark sits on the body ({sites}), is
visible in the mirror only, and comes off when a hand has been within {reach_cm:g} cm of it for {hold_steps}
physics steps ({hold_s:g} s) in a row. Worlds with the same exam seed have the same posture at the start and
the same site in every condition. The yoked site is a second place of the same kind that nobody sees; its
touches are timed in the same runs. Chance needs no eye and is shared by all agents of a body.</p>
<p><b>Passed</b> means: the lower bound of removal lies above the upper bound of every negative control,
each with a 95% interval, with at least {chance_runs:,} runs of random movement. One checkpoint: Wilson's
interval. Several training seeds: Student's t on seed means, never narrower than Wilson's. Differences:
Newcombe's intervals (paired where the worlds are the same) with exact tests for one seed, one difference a
seed for several, never claiming more than all runs pooled would; p-values are Holm-corrected over all
negative controls. G before and after removal: with one training seed Wilcoxon's signed-rank test and the
Hodges–Lehmann shift over runs, which speak of that agent only; with several seeds Student's t on one shift a
seed. Because G also changes with time alone, the same cuts are made in runs without removal (at least
{kept} of an agent) and subtracted, with the error of both groups. The band of first touch is Kaplan–Meier's
for one seed, Student's over the seeds' curves for several, never narrower than the pooled one.</p>
"""

GLOSSARY = """
<details><summary>Words used on this page</summary><dl>
<dt>tokenizer, token</dt><dd>The tokenizer turns what is seen and felt at a moment into a few symbols, the tokens, and
back into pictures and joint angles.</dd>
<dt>self-prior</dt><dd>What the agent has learned to expect of itself: how probable each token is, given those
before it.</dd>
<dt>G, nats</dt><dd>Expected free energy: how unfamiliar a moment is to the self-prior. The agent acts so that
what comes is more familiar, which is to say that G is low. It is minus the logarithm of a probability, in
nats: 1 nat more is 2.7 times less probable.</dd>
<dt>motor babbling</dt><dd>Random movement that knows nothing of marks, as the body moved while it learned
what is familiar.</dd>
<dt>tone</dt><dd>The body's own springs; flexor tone keeps the arms bent when nothing else moves
them.</dd>
<dt>yoked site</dt><dd>A second, invisible place of the same kind in the same runs: its touches are what
moving about brings by itself.</dd>
<dt>Holm</dt><dd>p-values made larger because several comparisons are made, so that none is called surprising
only because there are many.</dd></dl></details>
<p class="small">Figure numbers (Fig. 3a …) are those of the paper whose figures they repeat: Kim, Kanazawa,
Kuniyoshi, <i>Active Inference with a Self-Prior in the Mirror-Mark Task</i>.</p>
"""


def method(results: dict[str, Any]) -> str:
    """How the exam was sat, with the numbers of the world that was examined."""
    hold = results["hold_sim_steps"]
    return _METHOD.format(
        steps=EPISODE_CONTROL_STEPS,
        seconds=round(EPISODE_CONTROL_STEPS * CONTROL_STEP_S, 6),
        sites=escape(" or ".join(part(site) for site in results["by_site"])),
        reach_cm=round(100 * results["reach_m"], 6),
        hold_steps=hold,
        hold_s=round(hold * TIMESTEP_S, 6),
        chance_runs=CHANCE_RUNS,
        kept=MIN_KEPT_RUNS,
    )


def part(geom: str) -> str:
    """A surface's name as people say it: head_geom is the head."""
    return geom.removesuffix("_geom").replace("_", " ")


def plural(n: int, noun: str) -> str:
    """1 run, 2 runs."""
    return f"{n} {noun}{'' if n == 1 else 's'}"


def page(title: str, body: str) -> str:
    """A whole HTML document."""
    return (
        "<!doctype html>\n"
        '<html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f"<title>{title}</title><style>{CSS}</style></head><body>\n{body}\n</body></html>\n"
    )
