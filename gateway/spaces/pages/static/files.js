/** The files of the space: list, download, delete, and uploads one after another, chosen or dropped. */

import { addressOf, ask, download, refusal } from "./api.js";
import { attempt, byId, make, notify, sizeText, syncList } from "./dom.js";
import { hasIam, session } from "./session.js";

const KEEP_MS = 60_000; // of a file that was fetched, until the browser has saved it

export class Files {
  #list = byId("files");
  #bytesMax;
  #uploading = Promise.resolve();

  constructor() {
    const input = byId("file-input");
    this.#bytesMax = Number(input.dataset.bytesMax);
    input.onchange = () => {
      this.#upload([...input.files]);
      input.value = "";
    };
    this.#takeDrops();
  }

  async refresh() {
    if (!session.may("file_read")) return;
    const { files } = await ask(addressOf("files"));
    byId("no-files").hidden = files.length > 0;
    syncList(this.#list, files, (file) => file.file_id, "file", item, () => {});
    for (const remove of this.#list.querySelectorAll(".delete")) {
      remove.hidden = !session.may("file_write");
      remove.onclick = () => attempt(() => this.#delete(remove.closest("li").dataset.file));
    }
  }

  async #delete(id) {
    await ask(addressOf("files", id), { method: "DELETE" });
    await this.refresh();
  }

  #takeDrops() {
    const drop = byId("drop");
    const hasFiles = (event) => session.may("file_write") && event.dataTransfer?.types.includes("Files");
    for (const name of ["dragenter", "dragover"]) {
      document.addEventListener(name, (event) => {
        if (!hasFiles(event)) return;
        event.preventDefault();
        drop.hidden = false;
      });
    }
    document.addEventListener("dragleave", (event) => {
      if (event.relatedTarget === null) drop.hidden = true;
    });
    document.addEventListener("drop", (event) => {
      drop.hidden = true;
      if (!hasFiles(event)) return;
      event.preventDefault();
      this.#upload([...event.dataTransfer.files]);
    });
  }

  #upload(files) {
    for (const file of files) {
      this.#uploading = this.#uploading.then(() => attempt(() => this.#uploadOne(file)));
    }
  }

  async #uploadOne(file) {
    if (file.size > this.#bytesMax) {
      throw new Error(`${file.name} is larger than ${sizeText(this.#bytesMax)}, which is the most that a file may have.`);
    }
    const progress = make("progress", { max: 1, value: 0, ariaLabel: `Upload of ${file.name}` });
    const line = make("li", { className: "row" }, make("span", { textContent: file.name }), progress);
    byId("uploads").append(line);
    try {
      await post(file, (part) => (progress.value = part));
      notify(`${file.name} is in the space.`);
    } finally {
      line.remove();
    }
    await this.refresh();
  }
}

function item({ file_id, name, size, created_at }) {
  const link = make("a", { href: addressOf("files", file_id), download: name, textContent: name });
  if (hasIam) link.onclick = (event) => byBearer(event, name); // a link cannot show an access token
  const about = `${sizeText(size)} · ${new Date(created_at).toLocaleString()}`;
  return make(
    "li",
    { dataset: { file: file_id }, className: "row" },
    link,
    make("span", { className: "note", textContent: about }),
    make("button", { type: "button", className: "delete", ariaLabel: `Delete ${name}`, textContent: "Delete" }),
  );
}

async function byBearer(event, name) {
  event.preventDefault();
  const { href } = event.currentTarget;
  await attempt(async () => {
    const url = URL.createObjectURL(await download(href));
    make("a", { href: url, download: name }).click();
    setTimeout(() => URL.revokeObjectURL(url), KEEP_MS);
  });
}

/** `fetch` does not tell how far an upload is. */
async function post(file, onProgress) {
  const token = await session.accessToken();
  return new Promise((resolve, reject) => {
    const request = new XMLHttpRequest();
    request.open("POST", addressOf("files"));
    if (token !== undefined) request.setRequestHeader("Authorization", `Bearer ${token}`);
    request.responseType = "json";
    request.upload.onprogress = ({ loaded, total }) => onProgress(loaded / total);
    request.onerror = () => reject(new Error(`The upload of ${file.name} broke off.`));
    request.onload = () => (request.status === 201 ? resolve() : reject(refusal(request.status, request.response)));
    const form = new FormData();
    form.append("file", file);
    request.send(form);
  });
}
