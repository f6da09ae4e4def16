"""The stage-2 trainers inside ms-swift's own training program. Nothing outside this folder imports
ms-swift, which has an environment of its own (`make setup-swift`).
"""
