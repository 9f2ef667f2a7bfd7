-- Ends what is due and serves the line. Run by somebody when the next deadline is reached.
-- ARGV: namespace
-- Returns {now, next deadline, foreign holders}
gate.sweep()
gate.save()
return { NOW_TEXT, gate.next_deadline(), gate.has_foreign_holders() }
