-- Confirms a grant: asked by a waiter that was notified by somebody else's script, or mistrusts an old notice.
-- ARGV: namespace, id
-- Returns {'granted', slots, epoch, slot, token, waited, now}, {'waiting', now}, or {'gone', how it ended}.
local id = ARGV[2]
gate.sweep()
local record = gate.record_of(id)
if record.is_ours and gate.has_all(MAIN, id, record.weight) then
    gate.adopt(id, record)
    gate.put(MAIN, id, record.weight, NOW + gate.lease_of(record))
    gate.drop_notifications(id, record.weight)
    gate.save()
    return { 'granted', gate.limit, gate.epoch, record.slot, record.token, tostring(record.waited), NOW_TEXT }
end
gate.save()
if call('ZSCORE', WAITING, gate.member_of(id, record.weight - 1)) then
    return { 'waiting', NOW_TEXT }
end
return { 'gone', gate.ending_of(id) }
