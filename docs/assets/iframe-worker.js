// Browsers start no worker for a page that was opened from a folder, and the search runs in a worker.
// There a hidden frame of the same origin takes the worker's part.
if (location.protocol === "file:") {
  window.Worker = class extends EventTarget {
    #inner;

    constructor(url) {
      super();
      this.#inner = new Promise((ready) => {
        const frame = document.createElement("iframe");
        frame.hidden = true;
        frame.addEventListener("load", () => {
          const inner = frame.contentWindow;
          inner.postMessage = (data) => this.dispatchEvent(new MessageEvent("message", { data }));
          const script = inner.document.createElement("script");
          script.addEventListener("load", () => ready(inner));
          script.src = url;
          inner.document.body.append(script);
        }, { once: true });
        document.body.append(frame);
      });
    }

    postMessage(data) {
      this.#inner.then((inner) => inner.dispatchEvent(new inner.MessageEvent("message", { data })));
    }
  };
}
