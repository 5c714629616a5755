from typing import Any

def __getattr__(name: str) -> Any: ...  # the part of the package that is not Graphcore's
