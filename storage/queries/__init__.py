"""The statements, one file a subject: functions of a connection, which somebody else opened and commits."""
