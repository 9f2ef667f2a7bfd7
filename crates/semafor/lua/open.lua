-- Opens a name without asking for a slot.
-- ARGV: namespace, slots (0: the current number), bound of the line (-1: unchanged)
-- Returns {'open', slots, epoch}, or {'mismatch', slots}, {'unset'}, {'closing', held}.
gate.check_types()
gate.repair()
gate.sweep()
local wrong = gate.open(tonumber(ARGV[2]), false, -1, tonumber(ARGV[3]))
if wrong then
    gate.save()
    return wrong
end
gate.keep(SPARE)
gate.save()
return { 'open', gate.slots, gate.epoch }
