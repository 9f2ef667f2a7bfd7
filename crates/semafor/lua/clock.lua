-- The server's clock decides, for everybody. Seconds, as a float: the unit of all scores.
local function server_now()
    local time = redis.call('TIME')
    return time[1] + time[2] / 1000000
end
