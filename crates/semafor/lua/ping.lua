-- A sign of life for all that one process holds and waits for under a name.
-- ARGV: namespace, number of holders, then for each holder id, weight, lease; then for each waiter id, weight, heartbeat
-- Returns {now, next deadline, foreign holders, state, state, …}: per id 1 (still so), {'granted', slot, token, waited} for a
-- waiter that has its slot, or {'gone', how it ended}.
local holders = tonumber(ARGV[2])
local answer = { now_text(), '', 0 }
local span = SPARE

sweep_leases()
-- Late, but alive, and nobody has its slot yet: a heartbeat counts before the dead are swept.
for i = 3, #ARGV, 3 do
    local id, weight, lease = ARGV[i], tonumber(ARGV[i + 1]), tonumber(ARGV[i + 2])
    span = math.max(span, lease)
    for part = 0, weight - 1 do
        local member = member_of(id, part)
        call('ZADD', MAIN, 'XX', NOW + lease, member)
        if #answer - 3 >= holders then
            call('ZADD', BEATS, 'XX', NOW + lease, member)
        end
    end
    answer[#answer + 1] = 1
end

sweep()
for i = 3, #ARGV, 3 do
    local id, weight = ARGV[i], tonumber(ARGV[i + 1])
    local place = (i - 3) / 3 + 1
    local has_all = call('ZSCORE', MAIN, id) and (weight == 1 or parts_in(MAIN, id, weight) == weight)
    if has_all and place > holders then
        local record = record_of(id)
        adopt(id, record)
        answer[place + 3] = { 'granted', record.slot, record.token, string.format('%.6f', record.waited) }
    elseif not has_all and not call('ZSCORE', WAITING, member_of(id, weight - 1)) then
        answer[place + 3] = { 'gone', ending_of(id) }
    end
end

keep_all(math.max(span, gate.keep_until - NOW))
answer[2] = next_deadline()
answer[3] = has_foreign_holders()
save()
return answer
