"""Stage-2: from a rollout to its training target.

The way of one sample: `engine.contract.sources.records` reads it, `parse` judges the rollout over
its token pieces, `match` pairs predictions with objects, `desc_gate` accepts near descriptions,
`target` writes the two teacher-forced segments, `packing` fills packs with them, `losses` scores
a pack.
Nothing here knows a trainer, a model's weights or a rollout backend.
"""
