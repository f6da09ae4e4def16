"""When a run is not worth its night: no headroom, a collapse, and the way back."""
