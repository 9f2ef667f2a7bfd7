-- Ends everything that is due and serves the line. A client runs it when the next deadline is reached.
-- ARGV: namespace
-- Returns {now, next deadline, python clients (see gate.python_clients)}
call('ZREM', MAIN, '') -- so that a server out of memory accepts the other writes: see ping.lua
gate.repair()
gate.sweep()
gate.save()
return { NOW_TEXT, gate.next_deadline(), gate.python_clients() }
