"""The YAML contract of the stage-2 trainers: `config` is the whole, each section has its file."""
