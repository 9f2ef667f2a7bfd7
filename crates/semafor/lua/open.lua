-- Opens a name without asking for a slot.
-- ARGV: namespace, slots (0: whatever there are), bound of the line (-1: as it is)
-- Returns {'open', slots, epoch}, or {'mismatch', slots}, {'unset'}, {'closing', held}.
sweep()
local wrong = enter(tonumber(ARGV[2]), false, -1, tonumber(ARGV[3]))
if wrong then
    save()
    return wrong
end
keep(SPARE)
save()
extend(INFO, KEPT * 1000)
return { 'open', gate.limit, gate.epoch }
