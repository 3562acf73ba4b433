"""Episodes for people and programs elsewhere: server, OpenEnv, speech."""
