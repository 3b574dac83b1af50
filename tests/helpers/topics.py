"""What scripted conversations are about: each number has its own words, or a detector finds a loop."""

from __future__ import annotations

_STEPS = (
    ("Weigh 500 grams of rye flour", "The scale shows 500 grams of rye, sifted once"),
    ("Dissolve yeast in lukewarm milk", "Seven grams of yeast foam in milk at 35 degrees"),
    ("Chop walnuts for the filling", "A handful of walnuts is cut into coarse pieces"),
    ("Choose a tin that fits the oven", "A steel loaf pan of 25 centimetres has enough room"),
    ("Knead until the dough is smooth", "After ten minutes it stretches without tearing"),
    ("Find out how long it should rise", "Ninety minutes under a damp towel doubles its volume"),
    ("Grate lemon peel into a bowl", "Zest of two lemons gives a fresh scent"),
    ("Compare honey with brown sugar", "Honey keeps crumbs moist, sugar browns faster"),
    ("Plan a glaze for the crust", "Egg yolk and cream make it shine"),
    ("List spices that suit autumn", "Cinnamon, cardamom, nutmeg and a little clove"),
    ("Heat the stove in advance", "It reaches 230 degrees within twenty minutes"),
    ("Explain why steam matters", "Vapour keeps the surface elastic, so it splits evenly"),
    ("Score a pattern with a blade", "Three diagonal cuts of five millimetres look good"),
    ("Check when the loaf is ready", "Knocked from below, it sounds hollow"),
    ("Cool it on a wire rack", "An hour of rest lets moisture spread"),
    ("Slice it for six guests", "Twelve slices, each a finger thick"),
    ("Suggest a soup as company", "Pumpkin with ginger goes well beside it"),
    ("Write the label for sale", "Organic rye, walnut, best before Friday"),
    ("Calculate what one piece costs", "Ingredients divided by twelve come to 31 cents"),
    ("Store leftovers safely", "A linen bag inside a clay pot prevents mould"),
    ("Draft an advert for neighbours", "Warm from Saturday, eight o'clock, at the corner"),
)


def write_instruction(number: int) -> str:
    """Return the instruction of a turn."""
    return f"Instruction: {_STEPS[number // 2 % len(_STEPS)][0]}.\nInput: None"


def write_solution(number: int) -> str:
    """Return the solution of a turn."""
    return f"Solution: {_STEPS[number // 2 % len(_STEPS)][1]}.\nNext request."
