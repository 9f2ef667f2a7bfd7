-- Takes slots, or a place in line. One trip when slots are free.
-- ARGV: namespace, id, weight, ttl (0: none), heartbeat, who, 'wait' or 'try', slots, opened (0 or 1), epoch,
--       bound of the line (-1: as it is), again (1 if the answer to the same call may have been lost),
--       arrival (0: now; else the score of a place that the server has lost)
-- Returns {'granted', slots, epoch, slot, token, waited, now}
--      or {'queued', slots, epoch, arrival, now, next deadline, foreign holders}
--      or {'busy', slots, epoch, held, waiting}, {'full', limit}, {'too_heavy', slots}, {'closed'}, and what open.lua returns.
local id, weight, mode = ARGV[2], tonumber(ARGV[3]), ARGV[7]
local arrival = tonumber(ARGV[13])

local function granted(record)
    return {
        'granted', gate.limit, gate.epoch, record.slot, record.token, string.format('%.6f', record.waited), now_text(),
    }
end

local function queued(score)
    return {
        'queued', gate.limit, gate.epoch, string.format('%.6f', score), now_text(), next_deadline(), has_foreign_holders(),
    }
end

sweep()
local wrong = enter(tonumber(ARGV[8]), ARGV[9] == '1', tonumber(ARGV[10]), tonumber(ARGV[11]))
if wrong then
    if wrong[1] == 'closed' then
        count('refused')
    end
    save()
    return wrong
end

local record = {
    is_ours = true,
    weight = weight,
    ttl = tonumber(ARGV[4]),
    heartbeat = tonumber(ARGV[5]),
    since = NOW,
    slot = NOT_YET,
    token = 0,
    waited = 0,
    who = ARGV[6],
}
local span = math.max(record.heartbeat, record.ttl)

if ending_of(id) == UNWANTED then
    -- It comes after its own end: it was held up on the way.
    save()
    return { 'closed' }
end

if ARGV[12] == '1' then
    -- Never twice: not two slots, not a slot and a place.
    local known = record_of(id)
    if known.is_ours then
        if parts_in(MAIN, id, known.weight) == known.weight then
            adopt(id, known)
            put(MAIN, id, known.weight, NOW + lease_of(known))
            save()
            return granted(known)
        end
        local score = call('ZSCORE', WAITING, id)
        if score then
            save()
            return queued(tonumber(score))
        end
        leave_line(id, known)
    end
end

if weight > gate.limit then
    count('refused')
    save()
    return { 'too_heavy', gate.limit }
end

if is_line_empty and gate.limit - held >= weight then
    grant_at_once(id, record)
    keep(span)
    save()
    return granted(record)
end

if mode == 'try' then
    count('refused')
    save()
    return { 'busy', gate.limit, gate.epoch, held, line_length() }
end

if gate.max_waiting > 0 and arrival == 0 then
    local bound = gate.max_waiting - 1
    if call('ZCARD', WAITING) >= bound and line_length() >= bound then
        count('refused')
        save()
        return { 'full', bound }
    end
end

local score = arrival
if score == 0 then
    -- Behind everybody, also behind those whose clocks are fast.
    local last = call('ZRANGE', WAITING, -1, -1, 'WITHSCORES')[2]
    score = last and math.max(NOW, tonumber(last) + 0.000001) or NOW
end
record.since = math.min(score, NOW)
put(WAITING, id, weight, score)
put(BEATS, id, weight, NOW + record.heartbeat)
write_record(id, record)
if is_line_empty then
    keep_new(WAITING, span)
    keep_new(BEATS, span)
end
keep(span)
is_line_empty = false
count('queued')
if arrival > 0 then
    serve()
    local now_known = record_of(id)
    if now_known.slot ~= NOT_YET then
        save()
        return granted(now_known)
    end
end
save()
return queued(score)
