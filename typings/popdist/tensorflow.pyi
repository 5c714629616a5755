# Written by hand from the API documentation of PopDist, of which no signatures were published.
from typing import Any

def set_ipu_config(config, ipus_per_replica=1, configure_device=True) -> Any: ...
