"""Alembic's entry: runs the migrations on the connection that worker.db.migrations hands over."""

from alembic import context
from sqlmodel import SQLModel

import worker.db.tables  # noqa: F401 - fills the metadata

context.configure(
    connection=context.config.attributes["connection"],
    target_metadata=SQLModel.metadata,
    transactional_ddl=True,
    render_as_batch=True,
)
with context.begin_transaction():
    context.run_migrations()
