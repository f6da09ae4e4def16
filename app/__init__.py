"""The app room: what people see."""
