"""From checkpoint bytes to alerts: reading, measuring, detecting, telling."""
