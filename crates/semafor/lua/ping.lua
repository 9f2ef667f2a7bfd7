-- A sign of life for all that one process holds and waits for under a name.
-- ARGV: namespace, number of holders, then for each holder id, weight, lease; then for each waiter id, weight, heartbeat
-- Returns {now, next deadline, foreign holders, state, state, …}: per id 1 (still so), {'granted', slot, token, waited} for a
-- waiter that has its slot, or {'gone', how it ended}.
local holders = tonumber(ARGV[2])
local answer = { NOW_TEXT, '', 0 }
local span = SPARE

-- A server without memory refuses the first write of a script if it may need some. This needs none, and those after it are
-- let through: nobody is taken for dead for want of memory.
call('ZREM', MAIN, '')
gate.sweep_leases()
-- Late, but alive, and nobody has its slot yet: a heartbeat counts before the dead are swept.
for i = 3, #ARGV, 3 do
    local id, weight, lease = ARGV[i], tonumber(ARGV[i + 1]), tonumber(ARGV[i + 2])
    span = math.max(span, lease)
    for part = 0, weight - 1 do
        local member = gate.member_of(id, part)
        call('ZADD', MAIN, 'XX', NOW + lease, member)
        if #answer - 3 >= holders then
            call('ZADD', BEATS, 'XX', NOW + lease, member)
        end
    end
    answer[#answer + 1] = 1
end

gate.sweep()
for i = 3, #ARGV, 3 do
    local id, weight = ARGV[i], tonumber(ARGV[i + 1])
    local place = (i - 3) / 3 + 1
    if gate.has_all(MAIN, id, weight) then
        if place > holders then
            local record = gate.record_of(id)
            gate.adopt(id, record)
            answer[place + 3] = { 'granted', record.slot, record.token, tostring(record.waited) }
        end
    elseif place <= holders or not call('ZSCORE', WAITING, gate.member_of(id, weight - 1)) then
        answer[place + 3] = { 'gone', gate.write_off(id, gate.record_of(id)) or gate.ending_of(id) }
    end
end

gate.keep_all(math.max(span, gate.keep_until - NOW))
answer[2] = gate.next_deadline()
answer[3] = gate.has_foreign_holders()
gate.save()
return answer
