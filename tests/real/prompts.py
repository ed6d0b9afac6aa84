"""Prompts of six kinds, so that acceptance differs from one to the next: four and more of each."""

PROMPTS: dict[str, tuple[str, ...]] = {
    "code": (
        "Write a Python function that returns the n-th Fibonacci number with a loop.",
        "Write a Python class Stack with push, pop and peek, raising IndexError when it is empty.",
        "Write a Python function that counts how often each word occurs in a text file.",
        "Write a SQL query that lists the ten customers with the highest total order value.",
    ),
    "json": (
        "Describe a small bakery as a JSON object with the keys name, street, city, opens, closes and products.",
        'Write a JSON array of five objects, each with the keys "id", "planet" and "moons".',
        "Turn this into JSON: Ada is 36 and lives in London. Grace is 45 and lives in New York.",
        "Write a JSON schema for a user with an id, an email address and an optional list of tags.",
    ),
    "edit": (
        "Repeat this code and only rename x to total: x = 0\nfor item in items:\n    x = x + item\nreturn x",
        "Copy this list and put it in alphabetical order: pear, apple, fig, cherry, banana, apple, kiwi.",
        "Correct the spelling and repeat the sentence: The quik brown fox jumpd over teh lazy dog and run away.",
        "Repeat this paragraph twice: The river rises in the hills. It passes two mills and a bridge of stone.",
    ),
    "prose": (
        "Tell a short story about a lighthouse keeper who finds a letter in a bottle.",
        "Describe a market square early on a winter morning.",
        "Explain in plain words why the sky is blue in the day and red in the evening.",
        "Write a paragraph about the history of the bicycle.",
    ),
    "chat": (
        "I slept badly and have a long day before me. What would you do?",
        "What should I cook tonight with rice, eggs and two tomatoes?",
        "My friend forgot my birthday. How do I bring it up without a quarrel?",
        "Give me three ideas for a weekend in a town by the sea.",
    ),
    "arithmetic": (
        "Count from 1 to 60, with commas between the numbers.",
        "Write out the multiplication table of 7, from 7 x 1 to 7 x 12.",
        "A train leaves at 9:40 and travels 3 hours and 35 minutes. When does it arrive? Show each step.",
        "List the first twenty square numbers, one on each line.",
    ),
}


def mixed() -> list[str]:
    """Return all prompts with the kinds interleaved, so that any few in a row are of different kinds."""
    return [prompt for group in zip(*PROMPTS.values(), strict=True) for prompt in group]
