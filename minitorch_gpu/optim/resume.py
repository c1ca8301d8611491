"""Loading an optimizer's state: which saved entry is which parameter's, and does it fit."""

from __future__ import annotations

from typing import Any

Key = Any  # a parameter's name, or its position


def plan_loading(state_dict: dict[str, Any], groups: list[list[Key]]) -> dict[Key, Key]:
    """The saved key for each of our keys: by name if both sides have names, else by position.

    Raises:
        ValueError: the number of groups or their parameters differ, or the dict is none of
            an optimizer.
    """
    if not isinstance(state_dict, dict) or not {"state", "param_groups"} <= set(state_dict):
        raise ValueError('an optimizer\'s state dict holds "state" and "param_groups"')
    saved = [list(group["params"]) for group in state_dict["param_groups"]]
    if len(saved) != len(groups):
        raise ValueError(f"the state dict has {len(saved)} parameter groups, this optimizer "
                         f"{len(groups)}")
    match: dict[Key, Key] = {}
    named = _are_names(saved) and _are_names(groups)
    for place, (ours, theirs) in enumerate(zip(groups, saved)):
        if named:
            _check_names(ours, theirs, place)
            match.update((key, key) for key in ours)
        elif len(ours) != len(theirs):
            raise ValueError(f"group {place} has {len(theirs)} parameters in the state dict "
                             f"and {len(ours)} in this optimizer")
        else:
            match.update(zip(ours, theirs))
    matched = set(match.values())
    unknown = [key for key in state_dict["state"] if key not in matched]
    if unknown:
        raise ValueError(f"the state dict has state for {unknown[:5]}, which are in none of "
                         "its groups")
    return match


def _are_names(groups: list[list[Key]]) -> bool:
    return all(isinstance(key, str) for group in groups for key in group)


def _check_names(ours: list[str], theirs: list[str], place: int) -> None:
    missing, unexpected = sorted(set(ours) - set(theirs)), sorted(set(theirs) - set(ours))
    if missing or unexpected:
        raise ValueError(f"group {place}: the state dict lacks {missing[:5]} and has "
                         f"{unexpected[:5]}, which this optimizer has not")


def check_states(
    values: dict[str, Any], slots: tuple[str, ...], shape: tuple[int, ...], key: Key
) -> None:
    """Raise ValueError unless ``values`` holds every slot, Tensors among them of ``shape``."""
    missing = [slot for slot in slots if slot not in values]
    if missing:
        raise ValueError(f"the state of parameter {key!r} has {', '.join(values)} and lacks "
                         f"{', '.join(missing)}: was it saved by another optimizer?")
    for slot, value in values.items():
        # A step count may have been saved as a tensor of one element.
        found = getattr(value, "shape", None)
        wanted: Any = (None, ()) if slot == "step" else (shape,)
        if found not in wanted or isinstance(value, str):
            raise ValueError(f"{slot} of parameter {key!r} has shape {found} in the state "
                             f"dict, not {wanted[-1]}")
