-- Confirms a grant. Called for a waiter that was notified by another client's script, or by a message that may be old.
-- ARGV: namespace, id, largest fencing token that the process has seen
-- Returns {'granted', slots, epoch, slot, token, waited, now, python clients, end of lease}, {'waiting', now},
--      or {'gone', how it ended}.
local id, floor = ARGV[2], tonumber(ARGV[3])
call('ZREM', MAIN, '') -- so that a server out of memory accepts the other writes: see ping.lua
gate.repair()
gate.sweep()
local record = gate.record_of(id)
local ends = record.is_ours and gate.has_slots(id, record) and gate.confirm(id, record, floor)
if ends then
    gate.drop_notifications(id, record.weight)
    gate.save()
    return { 'granted', gate.slots, gate.epoch, record.slot, record.token, tostring(record.waited), NOW_TEXT,
        gate.python_clients(), ends }
end
gate.save()
if call('ZSCORE', WAITING, gate.member_of(id, gate.parts_of(record.weight) - 1)) then
    return { 'waiting', NOW_TEXT }
end
return { 'gone', gate.ending_of(id) }
