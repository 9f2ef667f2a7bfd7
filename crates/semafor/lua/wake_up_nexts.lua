-- Ends what is due and serves the line. Run by somebody when the next deadline is reached.
-- ARGV: namespace
-- Returns {now, next deadline, foreign holders}
sweep()
save()
return { now_text(), next_deadline(), has_foreign_holders() }
