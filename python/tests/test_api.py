"""What the package offers is documented."""

import inspect

import rdusim as rs


def test_everything_public_has_a_docstring():
    for name in rs.__all__:
        if name != "__version__":
            assert inspect.getdoc(getattr(rs, name)), name
