"""Methods: what each approach hands to a learner; classes are imported when first used."""

from puorl.methods.base import METHODS, Method, MethodEntry, find, make

__all__ = ["METHODS", "Method", "MethodEntry", "find", "make"]
