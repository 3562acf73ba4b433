"""The game's options, and the settings that the rules read."""

from __future__ import annotations

from typing import Annotated, Literal

import jax.numpy as jnp
import numpy as np
from numpy.typing import NDArray
from pydantic import Field, WithJsonSchema, field_validator, model_validator
from pydantic.json_schema import JsonSchemaValue

from kibitz.core.options import OPERATOR, Options
from kibitz.games.deal_or_no_deal import contexts
from kibitz.games.deal_or_no_deal.bots.partner import KINDS, PartnerRow, styles
from kibitz.games.deal_or_no_deal.rules import MAX_UTILITY, Settings

Share = Annotated[float, Field(ge=0.0, le=1.0)]
Kind = Annotated[str, WithJsonSchema({"enum": list(KINDS)})]
WEIGHT: JsonSchemaValue = {"type": "number", "minimum": 0}
MIX: JsonSchemaValue = {"type": "object", "properties": dict.fromkeys(KINDS, WEIGHT), "minProperties": 1}
Mix = Annotated[dict[str, float], WithJsonSchema(MIX | {"additionalProperties": False})]


class NegotiationOptions(Options):
    """Every option is also a keyword of `gym.make("kibitz:DealOrNoDialog-v0", ...)`."""

    max_turns: int = Field(10, ge=1, le=250, description="acts of either side before the episode ends with nothing")
    reveal_partner_utilities: bool = Field(False, description="each seat sees the other's utilities")
    agent_starts: bool | None = Field(None, description="whether seat 0 starts; null: drawn for each episode")
    disagree_ends: bool = Field(True, description="DISAGREE ends the episode; false: it only loses a turn")
    min_count: int = Field(1, ge=1, le=7, description="fewest items of a type in uniform contexts")
    max_count: int = Field(4, ge=1, le=7, description="most items of a type; sizes the count heads")
    use_dataset: bool = Field(
        False, description="contexts from a data set instead of uniform ones", json_schema_extra=OPERATOR
    )
    dataset: Literal["self_play", "dialogues"] = Field("self_play", description="which part of the data set")
    dataset_path: str | None = Field(
        None, description="its file or folder; null: download it from the hub", json_schema_extra=OPERATOR
    )
    points_budget: int | None = Field(None, ge=1, le=70, description="what each seat's whole pool is worth")
    partner: Kind | Mix = Field("heuristic", description="kind of heuristic partner, or a mix of kinds by weight")
    partner_threshold: Share | tuple[Share, Share] = Field(
        0.55,
        description="share of its pool that the heuristic partner accepts (in thousandths), or a range",
    )
    past_offers: int = Field(0, ge=0, le=4, description="own last offers in a learner's features")
    insist_threshold: Share = Field(0.5, description="the same after an INSIST")

    @field_validator("partner_threshold", mode="before")
    @classmethod
    def _pair(cls, value: object) -> object:
        return tuple(value) if isinstance(value, list) else value

    @model_validator(mode="after")
    def _fits_together(self) -> NegotiationOptions:
        if self.min_count > self.max_count:
            raise ValueError(
                f"min_count is {self.min_count} and max_count {self.max_count}; min_count should not be larger."
            )
        if self.dataset_path is not None and not self.use_dataset:
            raise ValueError("dataset_path is set but use_dataset is false; set use_dataset=true to read it.")
        low, high = self.threshold_range
        if low > high:
            raise ValueError(f"partner_threshold runs from {low} to {high}; it should rise.")
        if self.insist_threshold > (low + high) / 2:
            raise ValueError(
                f"insist_threshold is {self.insist_threshold}, above the middle of partner_threshold, "
                f"{(low + high) / 2}; "
                "an INSIST should lower what the partner accepts."
            )
        mix = self.mix
        for kind in mix:
            if kind not in KINDS:
                raise ValueError(f"There is no partner {kind!r}; choose one of {', '.join(KINDS)}.")
        if not mix or len(mix) > 16 or not min(mix.values()) >= 0 or not 0 < sum(mix.values()) < float("inf"):
            raise ValueError("A partner mix needs 1 to 16 kinds with weights of at least 0, not all of them 0.")
        return self

    @property
    def mix(self) -> dict[str, float]:
        return {self.partner: 1.0} if isinstance(self.partner, str) else self.partner

    @property
    def threshold_range(self) -> tuple[float, float]:
        given = self.partner_threshold
        return given if isinstance(given, tuple) else (given, given)

    @property
    def fewest(self) -> int:
        """The smallest count; data sets have their own."""
        return 1 if self.use_dataset else self.min_count

    def settings(self) -> Settings:
        """The arrays. Reads the data set, if there is one."""
        starts = {None: 0.5, True: 1.0, False: 0.0}[self.agent_starts]
        table = self._table()
        return Settings(
            max_turns=jnp.int32(self.max_turns),
            disagree_ends=jnp.bool_(self.disagree_ends),
            reveal=jnp.bool_(self.reveal_partner_utilities),
            agent_starts=jnp.float32(starts),
            min_count=jnp.int32(self.fewest),
            max_count=jnp.int32(self.max_count),
            budget=jnp.int32(self.points_budget or _common_worth(table)),
            table=jnp.asarray(table),
            budget_table=jnp.asarray(self._budget_table()),
            styles=styles(self._rows()),
            past=jnp.zeros(self.past_offers, bool),
            ladders=((), ()),
        )

    def _rows(self) -> list[PartnerRow]:
        # in thousandths, like the partner's own threshold, so that ceiling and reference agree with what it accepts
        low, high, insist = (round(share, 3) for share in (*self.threshold_range, self.insist_threshold))
        plain = PartnerRow(low=low, high=high, insist_gap=(low + high) / 2 - insist)
        kinds = {**KINDS, "heuristic": plain}
        return [kinds[kind]._replace(weight=weight) for kind, weight in self.mix.items()]

    def _table(self) -> NDArray[np.int32]:
        if not self.use_dataset:
            return np.zeros((0, 9), np.int32)
        path = self.dataset_path or contexts.download(self.dataset)
        counts, utilities = contexts.read_contexts(path, self.dataset, self.max_count)
        if self.points_budget is not None:
            for seat in (0, 1):
                utilities[:, seat], _ = contexts.fit_budget(counts, utilities[:, seat], self.points_budget)
        return np.concatenate([counts, utilities.reshape(-1, 6)], axis=1).astype(np.int32)

    def _budget_table(self) -> NDArray[np.int32]:
        if self.points_budget is None or self.use_dataset:
            return np.zeros((0, 0), np.int32)
        return contexts.budget_table(self.min_count, self.max_count, MAX_UTILITY, self.points_budget)


def _common_worth(table: NDArray[np.int32]) -> int:
    """The worth of every pool of a data set to both seats, if it is the same number throughout; else 0."""
    worths = np.stack([(table[:, :3] * table[:, at : at + 3]).sum(1) for at in (3, 6)])
    return int(worths.flat[0]) if worths.size and (worths == worths.flat[0]).all() else 0
