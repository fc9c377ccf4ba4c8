"""What a solve asks of the transformer."""

from contextlib import contextmanager


@contextmanager
def watched(transformer):
    """Collects (latent, condition of its window) of every forward; both guidance branches are rows of the latent."""
    seen, conditions = [], []
    embed, make_field = transformer.embed_condition, transformer.field

    def embed_condition(condition):
        conditions.append(condition.clone())
        return embed(condition)

    def field(device):
        inner = make_field(device)

        def velocity(x, t, embedded):
            seen.append((x.clone(), conditions[-1]))
            return inner(x, t, embedded)

        return velocity

    transformer.embed_condition, transformer.field = embed_condition, field
    try:
        yield seen
    finally:
        del transformer.embed_condition, transformer.field
