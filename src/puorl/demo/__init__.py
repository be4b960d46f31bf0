"""The whole product on one small problem, in minutes."""
