-- Ends everything that is due and serves the line. A client runs it when the next deadline is reached.
-- ARGV: namespace
-- Returns {now, next deadline, company (see gate.company)}
call('ZREM', MAIN, '') -- so that a server out of memory accepts the other writes: see ping.lua
gate.mend()
gate.sweep()
gate.save()
return { NOW_TEXT, gate.next_deadline(), gate.company() }
