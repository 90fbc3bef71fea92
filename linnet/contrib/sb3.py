"""Recurrent policies of Stable-Baselines3 with any unit that has one state, LSTM or RAN.

    from linnet.contrib.sb3 import MlpPolicy
    from sb3_contrib import RecurrentPPO

    model = RecurrentPPO(MlpPolicy, "CartPole-v1", policy_kwargs={"unit": "sru"})

sb3-contrib runs an LSTM step by step over every batch in which an episode starts. Here `resets=` starts
episodes, and a batch is one call.
"""

from __future__ import annotations

from typing import Any

from sb3_contrib.common.recurrent.policies import (
    RecurrentActorCriticCnnPolicy,
    RecurrentActorCriticPolicy,
    RecurrentMultiInputActorCriticPolicy,
)
from torch import Tensor

from linnet.base.options import choose
from linnet.recurrent.recurrent import Recurrent
from linnet.units import UNITS

Pair = tuple[Tensor, Tensor]


class LightPolicy(RecurrentActorCriticPolicy):
    """Recurrent policy of sb3-contrib with one of Linnet's units in place of each LSTM.

    unit           a name in `linnet.UNITS`
    unit_kwargs    options of the unit; the other arguments are those of sb3-contrib's policies
    """

    def __init__(
        self,
        observation_space: Any,
        action_space: Any,
        lr_schedule: Any,
        *args: Any,
        unit: str = "sru",
        unit_kwargs: dict[str, Any] | None = None,
        **kwargs: Any,
    ):
        choose("unit", unit, UNITS)
        super().__init__(observation_space, action_space, lr_schedule, *args, **kwargs)
        self.unit, self.unit_kwargs = unit, unit_kwargs or {}
        self.lstm_actor: Any = self.like(self.lstm_actor)
        if self.lstm_critic is not None:
            self.lstm_critic: Any = self.like(self.lstm_critic)
        # The optimiser of the parent class has the parameters of its LSTM.
        self.optimizer = self.optimizer_class(self.parameters(), lr=lr_schedule(1), **self.optimizer_kwargs)

    def like(self, lstm: Any) -> Recurrent:
        """A unit of the size of an LSTM, whose state is a pair of that size too."""
        sizes = (lstm.input_size, lstm.hidden_size, lstm.num_layers)
        rnn = UNITS[self.unit](*sizes, as_lstm=True, **self.unit_kwargs, device=lstm.weight_ih_l0.device)
        of_state = {rnn.output_size, *rnn.first_cell.states.values()}
        if of_state != {lstm.hidden_size}:
            raise ValueError(
                f"RecurrentPPO keeps a pair of states of lstm_hidden_size={lstm.hidden_size} channels; "
                f"{self.unit} has an output and states of {sorted(of_state)}"
            )
        return rnn

    @staticmethod
    def _process_sequence(
        features: Tensor, lstm_states: Pair, episode_starts: Tensor, lstm: Any
    ) -> tuple[Tensor, Pair]:
        """features [sequences * time, size], episode_starts [sequences * time]: 1 where an episode starts."""
        sequences = lstm_states[0].shape[1]
        x = features.reshape(sequences, -1, lstm.input_size).swapaxes(0, 1)
        resets = episode_starts.reshape(sequences, -1).swapaxes(0, 1).bool()
        y, states = lstm(x, lstm_states, resets=resets if resets.any() else None)
        return y.transpose(0, 1).flatten(0, 1), tuple(states)

    def _get_constructor_parameters(self) -> dict[str, Any]:
        own = {"unit": self.unit, "unit_kwargs": self.unit_kwargs}
        sizes = {"lstm_hidden_size": self.lstm_output_dim, "n_lstm_layers": self.lstm_actor.num_layers}
        shared = {"shared_lstm": self.shared_lstm, "enable_critic_lstm": self.enable_critic_lstm}
        return {**super()._get_constructor_parameters(), **sizes, **shared, **own}


class MlpPolicy(LightPolicy):
    """For observations that are vectors."""


class CnnPolicy(LightPolicy, RecurrentActorCriticCnnPolicy):
    """For observations that are images."""


class MultiInputPolicy(LightPolicy, RecurrentMultiInputActorCriticPolicy):
    """For observations that are dictionaries."""
