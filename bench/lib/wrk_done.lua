-- Prints wrk's own exact figures as one line of JSON. Runs once at the end: nothing is added per request.
done = function(summary, latency, requests)
    local errors = summary.errors
    io.write(string.format(
        'BENCH {"requests":%d,"duration_us":%d,"bytes":%d,"connect":%d,"read":%d,"write":%d,"timeout":%d,"status":%d,' ..
        '"p50_us":%d,"p75_us":%d,"p90_us":%d,"p99_us":%d,"p999_us":%d,"max_us":%d,"mean_us":%d}\n',
        summary.requests, summary.duration, summary.bytes,
        errors.connect, errors.read, errors.write, errors.timeout, errors.status,
        latency:percentile(50), latency:percentile(75), latency:percentile(90), latency:percentile(99),
        latency:percentile(99.9), latency.max, latency.mean))
end
