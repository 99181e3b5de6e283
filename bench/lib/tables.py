"""Tables of Markdown."""


def table(head, rows):
    return "".join("| " + " | ".join(str(cell) for cell in row) + " |\n"
                   for row in [head, ["---"] * len(head), *rows])
