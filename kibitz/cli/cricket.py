"""`kibitz cricket`: the simulator, its win probability and its calibration."""

from __future__ import annotations

import json
from typing import Annotated

import typer

from kibitz.cli import output
from kibitz.cli.options import Json
from kibitz.core.system.seed import LAST_SEED

ModelName = Annotated[
    str | None,
    typer.Option("--model", help="Fitted model: shipped, careful-tail or a --name given to fit; default: the era's"),
]
app = typer.Typer(help="The cricket simulator: matches, win probability, calibration.", no_args_is_help=True)


@app.command()
def simulate(
    out: Annotated[str, typer.Option("--out", help="Output CSV file with a row for each innings")],
    matches: Annotated[int, typer.Option("--matches", min=1, help="Number of matches")] = 1000,
    overs: Annotated[int, typer.Option("--overs", min=1, max=20, help="Overs per innings")] = 20,
    era: Annotated[str, typer.Option("--era", help="Era: pre2018, 2018-2022 or 2023+")] = "2023+",
    seed: Annotated[
        int, typer.Option("--seed", min=0, max=LAST_SEED, help="Seed; the same seed gives the same matches")
    ] = 0,
    model: ModelName = None,
    as_json: Json = False,
) -> None:
    """Simulate matches between default captains; columns: inn,total,wkts,legal,pp,mid_,death,fours,sixes,target,won."""
    from kibitz.games.cricket.fitting import csv_out
    from kibitz.games.cricket.fitting import simulate as simulator

    csv_out.check_place(out)
    with output.progress("matches", 1, quiet=as_json):
        rows = simulator.simulate(matches, overs, era, seed, model=model)
    simulator.write_rows(rows, out)
    first = rows["inn"] == 1
    output.facts(
        {
            "matches": matches,
            "out": out,
            "first_innings_mean": float(rows["total"][first].mean()),
            "first_innings_sd": float(rows["total"][first].std()),
            "wickets_mean": float(rows["wkts"][first].mean()),
        },
        as_json,
    )


@app.command()
def winprob(
    states: Annotated[str, typer.Option("--states", help="CSV file with chase states")],
    out: Annotated[str, typer.Option("--out", help="Output CSV file: a copy with the column p_win")],
    model: ModelName = None,
    as_json: Json = False,
) -> None:
    """Add the batting side's win probability to rows of balls_left,runs_needed,wickets_left,first_innings_total."""
    from kibitz.games.cricket.fitting.csv_out import write_winprob

    output.facts({"states": write_winprob(states, out, model), "out": out}, as_json)


@app.command()
def fit(
    tables: Annotated[str, typer.Option("--tables", help="Folder with the calibration tables")],
    name: Annotated[str, typer.Option("--name", help="Name of the new model, for `model` in options")] = "fitted",
    report: Annotated[bool, typer.Option("--report", help="Fit nothing: report the accuracy of --model")] = False,
    model: ModelName = None,
    cross_validate: Annotated[
        bool, typer.Option("--cross-validate", help="Keep no fit: predict each season with fits to the others")
    ] = False,
    winprob: Annotated[
        bool, typer.Option("--winprob", help="Keep the shipped ball model and fit only win probability")
    ] = False,
    as_json: Json = False,
) -> None:
    """Fit a model to the tables and keep it in the user's folder, or compare figures with the real ones."""
    from kibitz.games.cricket.fitting import fit as fitting
    from kibitz.games.cricket.fitting import report as reporting
    from kibitz.games.cricket.fitting.tables import Tables
    from kibitz.games.cricket.fitting.validate import cross_validate as validate

    found = Tables(tables)
    say: fitting.Report = (lambda line: None) if as_json else print
    if report or cross_validate:
        with output.progress("simulating three eras", 1, quiet=as_json or cross_validate):
            made = validate(found, say) if cross_validate else reporting.report(found, model)
        print(json.dumps(reporting.as_json(made), allow_nan=False) if as_json else reporting.as_text(made))
        return
    file = fitting.fit(found, name, report=say, ball_model=not winprob)
    output.facts({"model": name, "file": str(file)}, as_json)
