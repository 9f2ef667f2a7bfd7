-- Ends what is due and serves the line. Run by somebody when the next deadline is reached.
-- ARGV: namespace
-- Returns {now, next deadline, company (see gate.company)}
call('ZREM', MAIN, '') -- so that a server without memory lets the rest through: see ping.lua
gate.mend()
gate.sweep()
gate.save()
return { NOW_TEXT, gate.next_deadline(), gate.company() }
